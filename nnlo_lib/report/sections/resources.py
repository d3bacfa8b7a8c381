"""Cost of each run: seconds by phase, bytes by purpose, messages, and the usage of processors, memory and GPUs."""

import math
from collections import Counter
from collections.abc import Callable, Sequence

import pandas as pd

from nnlo_lib.core.text_format import MISSING, number
from nnlo_lib.report.figure import Figure, ValueAxis, bar_spec, curve_spec
from nnlo_lib.report.formatting import (
    MAX_NAMED_RUNS,
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

# (run, role) -> value of each part; one role of all ranks is empty.
Bars = dict[tuple[str, str], dict[str, float]]
PHASES = ("compute", "communication", "wait", "data", "evaluate", "checkpoint", "startup")
PURPOSES = ("gradient", "parameters")
MIN_OTHER_SHARE = 0.005  # of the total; below it, time outside of all phases is not shown
# Purposes of messages that carry votes, requests, sums for metrics, or measurements of the algorithm.
PURPOSES_WITHOUT_VECTORS = ("control", "metrics", "telemetry")
PAUSE_FACTOR = 10  # usual intervals between two samples; a longer gap is a pause between attempts


def _percentage(value: float) -> str:
    return percent(value / 100)


# Monitored quantities: column of monitor.csv, title, divisor and unit on the axis, format of a value.
MONITORED: tuple[tuple[str, str, float, str, Callable[[float], str]], ...] = (
    ("cpu_percent", "Processor usage of a rank", 1, "% of a core", _percentage),
    ("memory_bytes", "Memory of a rank", 1e6, "MB", format_bytes),
    ("host_cpu_percent", "Processor usage of the host", 1, "% of all cores", _percentage),
    ("host_memory_bytes", "Memory of the host", 1e6, "MB", format_bytes),
    ("gpu_percent", "GPU utilization", 1, "% of the time", _percentage),
    ("gpu_memory_bytes", "GPU memory", 1e6, "MB", format_bytes),
)


def seconds_by_phase(jobs: Sequence[FinishedRun]) -> Bars:
    """Return mean seconds per rank by phase, for each run and each role in it."""
    rows: list[dict[str, object]] = []
    for job in jobs:
        by_rank, alike = job.recorded("seconds_by_rank"), len(set(job.roles)) == 1
        roles = job.roles if len(job.roles) == len(by_rank) else ["worker"] * len(by_rank)
        for role, seconds in zip(roles, by_rank, strict=True):
            phases = {name: value for name, value in seconds.items() if name != "total"}
            total = seconds.get("total", 0.0)
            rest = total - sum(phases.values())
            other = rest if rest > MIN_OTHER_SHARE * total else 0.0
            rows.append({"run": job.run, "role": "" if alike else role, **phases, "other": other})
    return _means(rows, PHASES)


def bytes_by_purpose(jobs: Sequence[FinishedRun]) -> Bars:
    """Return for each run the bytes that all ranks of a job sent, by purpose, as the mean over jobs."""
    return _means([{"run": job.run, "role": "", **job.summary["bytes_sent"]} for job in jobs], PURPOSES)


def _means(rows: Sequence[dict[str, object]], first: Sequence[str]) -> Bars:
    """Return the means of rows by run and role; parts in the order of `first`, then in the order of the columns."""
    table = pd.DataFrame(rows).fillna(0.0).groupby(["run", "role"], sort=False).mean()
    names = [*(name for name in first if name in table), *(name for name in table if name not in first)]
    records = zip(table.index, table[names].to_dict("records"), strict=True)
    return {key: {str(name): value for name, value in row.items() if value} for key, row in records}


def bar_figure(title: str, bars: Bars, write: Callable[[float], str], virtual: Sequence[str] = ()) -> Figure:
    """Return stacked bars; `virtual`: runs whose seconds are virtual while the seconds of others are not."""
    names = list(dict.fromkeys(name for parts in bars.values() for name in parts))
    drawn, rows = [], []
    for (run, role), parts in bars.items():
        label = " · ".join(filter(None, [run, role, "virtual" if run in virtual else ""]))
        total = float(sum(parts.values()))
        for name, value in parts.items():
            text = f"{write(value)}, {share(value / total)}"
            drawn.append((f"{label} · {write(total)}", name, value, text))
        cells = {name: f"{write(value)} ({share(value / total)})" for name, value in parts.items()}
        rows.append([label, *(cells.get(name, MISSING) for name in names), write(total)])
    table = pd.DataFrame(drawn, columns=["label", "part", "value", "text"])
    spec = bar_spec(table, names, "B" if write is format_bytes else "s")
    text = f"{title}: a bar per run, divided into {', '.join(names)}."
    return Figure(title, "", text, spec, ("run", *names, "total"), rows)


def waiting_sentence(bars: Bars) -> str:
    """Return a sentence on the share of a worker's time spent in communication and waiting."""
    shares = {}
    for (run, role), parts in bars.items():
        if role in ("", "worker") and parts:
            after = sum(parts.values()) - parts.get("startup", 0.0)
            shares[run] = sum(parts.get(name, 0.0) for name in ("communication", "wait")) / (after or 1)
    texts = [f"{percent(idle, 2)} in {run}" for run, idle in sorted(shares.items(), key=lambda item: item[1])]
    if not texts or not max(shares.values()):
        return ""
    named = listing(texts) if len(texts) <= MAX_NAMED_RUNS else f"from {texts[0]} to {texts[-1]}"
    return f"Communication and waiting take {named} of a worker's time after start-up."


def communication_table(jobs: Sequence[FinishedRun]) -> RunTable:
    """Return messages, bytes, compression and staleness of each run, means over its jobs."""
    cells = {}
    for run, group in group_by_run(jobs).items():
        # Number of updates of all jobs by staleness; JSON turns the integer keys of the histogram into strings.
        counts: Counter[int] = Counter()
        for job in group:
            histogram = job.recorded("histograms").get("staleness", {})
            counts.update({int(value): count for value, count in histogram.items()})
        mean = sum(value * count for value, count in counts.items()) / (counts.total() or 1)
        late = {"mean staleness": number(mean, 3), "largest staleness": f"{max(counts, default=0):,}"}
        # All jobs of a run have the same configuration.
        settings = group[0].config_section("compression")
        name = settings.get("name", "none")
        others = [f"{key} {value}" for key, value in settings.items() if key != "name"]
        compression = MISSING if name == "none" else ", ".join([name, *others])
        cells[run] = {**_messages(group), "compression": compression, **(late if counts else {})}
    return run_table(cells)


def _messages(jobs: Sequence[FinishedRun]) -> dict[str, str]:
    sent = spread_of([sum(job.summary["bytes_sent"].values()) for job in jobs]).mean
    counted = [job for job in jobs if job.messages]
    messages = spread_of([job.messages or 0 for job in counted]).mean if counted else 0
    vectors, size = (
        sum(
            count
            for job in counted
            for purpose, count in job.summary[key].items()
            if purpose not in PURPOSES_WITHOUT_VECTORS
        )
        for key in ("messages_sent", "bytes_sent")
    )
    return {
        "messages": f"{messages:,.0f}" if messages else MISSING,
        "messages with vectors": f"{vectors / len(counted):,.0f}" if counted else MISSING,
        "bytes": format_bytes(sent),
        "bytes per message with a vector": format_bytes(size / vectors) if vectors else MISSING,
    }


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


def usage_table(found: dict[str, pd.DataFrame]) -> RunTable:
    """Return mean and maximum of each monitored quantity by run."""
    return run_table({
        run: {
            title.lower().replace("gpu", "GPU"): f"{write(table[name].mean())} (maximum {write(table[name].max())})"
            for name, title, _, _, write in MONITORED
            if name in table and table[name].notna().any()
        }
        for run, table in found.items()
    })  # fmt: skip


def usage_figures(found: dict[str, pd.DataFrame], runs: Sequence[str]) -> list[Figure]:
    """Return a figure for each monitored quantity with more than one point in time: the mean over ranks."""
    figures = []
    for name, title, unit, note, _ in MONITORED:
        lines = []
        for run, table in found.items():
            known = table.dropna(subset=[name]) if name in table else table[:0]
            # The ranks sample at different times, so their rows are grouped by interval and not by time.
            width = max(table["seconds"].max() / MAX_CURVE_POINTS, 1e-9)
            when = ((known["seconds"] / width).round() * width).rename("when")
            if when.nunique() > 1:
                line = (known.groupby(when)[name].mean() / unit).reset_index()
                lines.append(line.set_axis(["seconds", "value"], axis=1).assign(run=runs.index(run)))
        if lines:
            points = pd.concat(lines).assign(job=-1, std=math.nan)
            linear = ValueAxis({"axis": {"title": None, "format": "~s"}}, "", lambda value: value, number)
            spec = curve_spec(points, "seconds", "time (s)", linear, runs)
            figures.append(Figure(title, note, f"{title} against time.", spec))
    return figures
