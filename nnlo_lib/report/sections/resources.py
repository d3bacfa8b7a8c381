"""Cost of each run: seconds by phase, bytes by purpose, messages, and the usage of processors, memory and GPUs."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pandas as pd

from nnlo_lib.core.text_format import MISSING, number
from nnlo_lib.report.figure import Figure, ValueAxis, bar_spec, curve_spec
from nnlo_lib.report.formatting import (
    MAX_NAMED_RUNS,
    UNBROKEN,
    RunTable,
    format_bytes,
    listing,
    percent,
    run_table,
    share,
)
from nnlo_lib.report.learning_curves import MAX_CURVE_POINTS
from nnlo_lib.report.tables import group_by_run, spread_of
from nnlo_lib.state.finished_run import FinishedRun, read_table
from nnlo_lib.state.resource_use import ResourceUse

PHASES = ("compute", "communication", "wait", "data", "evaluate", "checkpoint", "startup")
PURPOSES = ("gradient", "parameters")
IDLE_PHASES = ("communication", "wait")
MIN_OTHER_SHARE = 0.005  # of the total; below it, time outside of all phases is not shown
# Purposes of messages that carry votes, requests, sums for metrics, or measurements of the algorithm.
PURPOSES_WITHOUT_VECTORS = ("control", "metrics", "telemetry")
MILLION = 1e6
PAUSE_FACTOR = 10  # usual intervals between two samples; a longer gap is a pause between attempts


@dataclass(frozen=True)
class StackedBar:
    """The segments of a run, or of one role in it; `role` is empty if all ranks have the same role."""

    run: str
    role: str
    total: float
    parts: dict[str, float]


def seconds_by_phase(jobs: Sequence[FinishedRun]) -> list[StackedBar]:
    """Return mean seconds per rank by phase, for each run and each role in it."""
    return _bars(_mean([row for job in jobs for row in _rank_rows(job)]), PHASES)


def _rank_rows(job: FinishedRun) -> list[dict[str, object]]:
    by_rank = job.recorded("seconds_by_rank")
    alike = len(set(job.roles)) == 1
    roles = job.roles if len(job.roles) == len(by_rank) else ["worker"] * len(by_rank)
    return [
        {"run": job.run, "role": "" if alike else role, **_complete(row)}
        for role, row in zip(roles, by_rank, strict=True)
    ]


def _complete(row: dict[str, float]) -> dict[str, float]:
    """Replace `total` by `other`: time outside of all phases (0 up to MIN_OTHER_SHARE of the total)."""
    phases = {name: value for name, value in row.items() if name != "total"}
    total = row.get("total", 0.0)
    rest = total - sum(phases.values())
    return {**phases, "other": rest if rest > MIN_OTHER_SHARE * total else 0.0}


def bytes_by_purpose(jobs: Sequence[FinishedRun]) -> list[StackedBar]:
    """Return for each run the bytes that all ranks of a job sent, by purpose, as the mean over jobs."""
    rows = [{"run": job.run, "role": "", **job.summary["bytes_sent"]} for job in jobs]
    return _bars(_mean(rows), PURPOSES)


def _mean(rows: Sequence[dict[str, object]]) -> pd.DataFrame:
    return pd.DataFrame(rows).fillna(0.0).groupby(["run", "role"], sort=False).mean()


def _bars(table: pd.DataFrame, first: Sequence[str]) -> list[StackedBar]:
    """Convert rows to bars; segments in the order of `first`, then in the order of the columns."""
    columns = [name for name in first if name in table] + [name for name in table if name not in first]
    return [
        StackedBar(
            run, role, float(sum(row.values())), {str(name): value for name, value in row.items() if value}
        )
        for (run, role), row in zip(table.index.to_list(), table[columns].to_dict("records"), strict=True)
    ]


def bar_figure(
    title: str, bars: Sequence[StackedBar], write: Callable[[float], str], virtual: Sequence[str] = ()
) -> Figure:
    """Return stacked bars.

    Args:
        write: formats a value.
        virtual: runs whose seconds are virtual while the seconds of others are not.
    """
    names = list(dict.fromkeys(name for bar in bars for name in bar.parts))
    labels = [
        " · ".join(filter(None, [bar.run, bar.role, "virtual" if bar.run in virtual else ""])) for bar in bars
    ]
    parts = [
        {"label": f"{label} · {write(bar.total)}", "part": name, "value": value, "text": f"{write(value)}, {share(value / bar.total)}"}
        for label, bar in zip(labels, bars, strict=True)
        for name, value in bar.parts.items()
    ]  # fmt: skip
    rows = [
        [label, *(f"{write(bar.parts[name])} ({share(bar.parts[name] / bar.total)})" if name in bar.parts else MISSING for name in names), write(bar.total)]
        for label, bar in zip(labels, bars, strict=True)
    ]  # fmt: skip
    spec = bar_spec(pd.DataFrame(parts, columns=["label", "part", "value", "text"]), names)
    return Figure(
        title,
        "",
        f"{title}: a bar per run, divided into {', '.join(names)}.",
        spec,
        ("run", *names, "total"),
        rows,
    )


def waiting_sentence(bars: Sequence[StackedBar]) -> str:
    """Return a sentence on the share of a worker's time spent in communication and waiting."""
    workers = [bar for bar in bars if bar.role in ("", "worker") and bar.total]
    shares = {bar.run: _idle_share(bar) for bar in workers}
    ranked = sorted(shares, key=lambda run: shares[run])
    if not ranked or not shares[ranked[-1]]:
        return ""
    texts = {run: f"{percent(shares[run], 2)} in {run}" for run in ranked}
    ends = f"from {texts[ranked[0]]} to {texts[ranked[-1]]}"
    share = listing(list(texts.values())) if len(texts) <= MAX_NAMED_RUNS else ends
    return f"Communication and waiting take {share} of a worker's time after start-up."


def _idle_share(bar: StackedBar) -> float:
    after = bar.total - bar.parts.get("startup", 0.0)
    return sum(bar.parts.get(name, 0.0) for name in IDLE_PHASES) / (after or 1)


def communication_table(jobs: Sequence[FinishedRun]) -> RunTable:
    """Return messages, bytes, compression and staleness of each run, means over its jobs."""
    return run_table(
        {
            # All jobs of a run have the same configuration.
            run: {**_messages(group), "compression": _compression(group[0]), **_staleness(staleness(group))}
            for run, group in group_by_run(jobs).items()
        }
    )


def _messages(jobs: Sequence[FinishedRun]) -> dict[str, str]:
    sent = spread_of([sum(job.summary["bytes_sent"].values()) for job in jobs]).mean
    counted = [job for job in jobs if job.messages]
    messages = spread_of([job.messages or 0 for job in counted]).mean if counted else 0
    vectors = sum(_of_vectors(job.summary["messages_sent"]) for job in counted)
    size = sum(_of_vectors(job.summary["bytes_sent"]) for job in counted)
    return {
        "messages": f"{messages:,.0f}" if messages else MISSING,
        "messages with vectors": f"{vectors / len(counted):,.0f}" if counted else MISSING,
        "bytes": format_bytes(sent),
        "bytes per message with a vector": format_bytes(size / vectors) if vectors else MISSING,
    }


def _of_vectors(counts: dict[str, int]) -> int:
    """Return the sum of the counts that belong to vectors of the training."""
    return sum(count for purpose, count in counts.items() if purpose not in PURPOSES_WITHOUT_VECTORS)


def _compression(job: FinishedRun) -> str:
    """Return the name of a compression and its settings: `top_k, fraction 0.01`."""
    settings = job.config_section("compression")
    if settings.get("name", "none") == "none":
        return MISSING
    return ", ".join(
        [settings["name"], *(f"{key} {value}" for key, value in settings.items() if key != "name")]
    )


def _staleness(counts: Counter[int]) -> dict[str, str]:
    if not counts:
        return {}
    mean = sum(value * count for value, count in counts.items()) / counts.total()
    return {"mean staleness": number(mean, 3), "largest staleness": f"{max(counts):,}"}


def staleness(jobs: Sequence[FinishedRun]) -> Counter[int]:
    """Return the number of updates of all jobs by staleness."""
    total: Counter[int] = Counter()
    for job in jobs:
        # JSON turns the integer keys of the histogram into strings.
        histogram = job.recorded("histograms").get("staleness", {})
        total.update({int(value): count for value, count in histogram.items()})
    return total


@dataclass(frozen=True)
class MonitoredQuantity:
    """A monitored quantity.

    Attributes:
        column: column of monitor.csv.
        unit: divisor of the values on the axis.
        note: unit of the axis as text.
        format_value: formats a value of `column`.
    """

    column: str
    title: str
    unit: float
    note: str
    format_value: Callable[[float], str]


def _percentage(value: float) -> str:
    return f"{number(value, 3)}{UNBROKEN}%"


MONITORED_QUANTITIES = (
    MonitoredQuantity("cpu_percent", "Processor usage of a rank", 1, "% of a core", _percentage),
    MonitoredQuantity("memory_bytes", "Memory of a rank", MILLION, "MB", format_bytes),
    MonitoredQuantity("host_cpu_percent", "Processor usage of the host", 1, "% of all cores", _percentage),
    MonitoredQuantity("host_memory_bytes", "Memory of the host", MILLION, "MB", format_bytes),
    MonitoredQuantity("gpu_percent", "GPU utilization", 1, "% of the time", _percentage),
    MonitoredQuantity("gpu_memory_bytes", "GPU memory", MILLION, "MB", format_bytes),
)


def monitor_tables(jobs: Sequence[FinishedRun]) -> dict[str, pd.DataFrame]:
    """Return the monitor table of the first job of each run, if that job has one."""
    first = {run: group[0].paths.monitor for run, group in group_by_run(jobs).items()}
    known = {run: read_table(file, ["seconds", "rank"]) for run, file in first.items() if file.exists()}
    return {run: _without_breaks(table) for run, table in known.items() if len(table)}


def _without_breaks(table: pd.DataFrame) -> pd.DataFrame:
    """Remove pauses between attempts: gaps above PAUSE_FACTOR usual intervals become one interval."""
    usual = table.groupby("rank")["seconds"].diff().median()
    gaps = table["seconds"].diff().fillna(0)
    # The negation keeps gaps if `usual` is NaN, because a rank has only one sample.
    return table.assign(seconds=gaps.where(~(gaps > PAUSE_FACTOR * usual), usual).cumsum())


def request_table(jobs: Sequence[FinishedRun]) -> RunTable:
    """Return what each run asked of the scheduler and used, and the settings that would have been enough."""
    found = {run: ResourceUse.of(group) for run, group in group_by_run(jobs).items()}
    return run_table({run: use.cells for run, use in found.items() if use})


def usage_table(found: dict[str, pd.DataFrame]) -> RunTable:
    """Return mean and maximum of each monitored quantity by run."""
    return run_table({run: _usage_row(table) for run, table in found.items()})


def _usage_row(table: pd.DataFrame) -> dict[str, str]:
    known = [
        figure
        for figure in MONITORED_QUANTITIES
        if figure.column in table and table[figure.column].notna().any()
    ]
    return {
        f"{figure.title.lower().replace('gpu', 'GPU')}": f"{figure.format_value(table[figure.column].mean())} "
        f"(maximum {figure.format_value(table[figure.column].max())})"
        for figure in known
    }


def usage_figures(found: dict[str, pd.DataFrame], runs: Sequence[str]) -> list[Figure]:
    """Return a figure for each monitored quantity with more than one point in time: the mean over ranks."""
    figures = []
    for quantity in MONITORED_QUANTITIES:
        lines = {run: _line(table, quantity) for run, table in found.items() if quantity.column in table}
        lines = {run: line for run, line in lines.items() if len(line) > 1}
        if lines:
            points = pd.concat(
                [line.reset_index().set_axis(["seconds", "value"], axis=1).assign(run=runs.index(run)) for run, line in lines.items()]
            ).assign(job=-1, std=math.nan)  # fmt: skip
            linear = ValueAxis({"axis": {"title": None, "format": "~s"}}, "", lambda value: value, number)
            spec = curve_spec(points, "seconds", "time (s)", linear, runs)
            figures.append(Figure(quantity.title, quantity.note, f"{quantity.title} against time.", spec))
    return figures


def _line(table: pd.DataFrame, quantity: MonitoredQuantity) -> "pd.Series[float]":
    """Return the mean over ranks, averaged in about MAX_CURVE_POINTS time intervals."""
    known = table.dropna(subset=[quantity.column])
    # The ranks sample at different times, so their rows are grouped by interval and not by time.
    width = max(table["seconds"].max() / MAX_CURVE_POINTS, 1e-9)
    when = ((known["seconds"] / width).round() * width).rename("when")
    return known.groupby(when)[quantity.column].mean() / quantity.unit
