"""Seconds by phase and bytes by purpose: stacked bars, one per run and role."""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from nnlo_lib.report.formatting import listing, percent
from nnlo_lib.state.finished_run import FinishedRun

PHASES = ("compute", "communication", "wait", "data", "evaluate", "checkpoint", "startup")
MIN_OTHER_SHARE = 0.005  # of the total; below it, time outside of all phases is not shown
IDLE_PHASES = ("communication", "wait")
MAX_NAMED_RUNS = 3  # runs; above this number, a sentence gives their range
PURPOSES = ("gradient", "parameters")


@dataclass(frozen=True)
class BarSegment:
    """A segment of a bar; `share` is its fraction of the bar, `width` its fraction of the longest bar."""

    name: str
    value: float
    share: float
    width: float


@dataclass(frozen=True)
class StackedBar:
    """The segments of a run, or of one role in it; `role` is empty if all ranks have the same role."""

    run: str
    role: str
    total: float
    parts: tuple[BarSegment, ...]

    def value(self, name: str) -> BarSegment | None:
        """Return the segment called `name`, or None if the bar has no segment of this name."""
        return next((part for part in self.parts if part.name == name), None)


def seconds_by_phase(jobs: Sequence[FinishedRun]) -> list[StackedBar]:
    """Return mean seconds per rank by phase, for each run and each role in it."""
    return _bars(_mean([row for job in jobs for row in _rank_rows(job)]), PHASES)


def bytes_by_purpose(jobs: Sequence[FinishedRun]) -> list[StackedBar]:
    """Return for each run the bytes that all ranks of a job sent, by purpose, as the mean over jobs."""
    rows = [{"run": job.run, "role": "", **job.summary["bytes_sent"]} for job in jobs]
    return _bars(_mean(rows), PURPOSES)


def segment_names(bars: Sequence[StackedBar]) -> list[str]:
    """Return the names of all segments, in order of first appearance."""
    return list(dict.fromkeys(part.name for bar in bars for part in bar.parts))


def waiting_sentence(bars: Sequence[StackedBar]) -> str:
    """Return a sentence on the share of a worker's time spent in communication and waiting."""
    workers = [bar for bar in bars if bar.role in ("", "worker") and bar.total]
    shares = {bar.run: _idle_share(bar) for bar in workers}
    ranked = sorted(shares, key=lambda run: shares[run])
    if not ranked or not shares[ranked[-1]]:
        return ""
    texts = {run: f"{percent(shares[run], 2)} in {run}" for run in ranked}
    share = listing(list(texts.values())) if len(texts) <= MAX_NAMED_RUNS else _range_text(texts, ranked)
    return f"Communication and waiting take {share} of a worker's time after start-up."


def _idle_share(bar: StackedBar) -> float:
    startup = bar.value("startup")
    after = bar.total - (startup.value if startup else 0.0)
    return sum(part.value for part in bar.parts if part.name in IDLE_PHASES) / (after or 1)


def _range_text(texts: dict[str, str], ranked: Sequence[str]) -> str:
    return f"from {texts[ranked[0]]} to {texts[ranked[-1]]}"


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


def _mean(rows: Sequence[dict[str, object]]) -> pd.DataFrame:
    return pd.DataFrame(rows).fillna(0.0).groupby(["run", "role"], sort=False).mean()


def _bars(table: pd.DataFrame, first: Sequence[str]) -> list[StackedBar]:
    """Convert rows to bars; segments in the order of `first`, then in the order of the columns."""
    columns = [name for name in first if name in table] + [name for name in table if name not in first]
    longest = table.sum(axis=1).max() or 1.0
    bars = []
    for (run, role), row in zip(table.index.to_list(), table[columns].to_dict("records"), strict=True):
        total = float(sum(row.values()))
        parts = [
            BarSegment(str(name), value, value / (total or 1), value / longest) for name, value in row.items()
        ]
        bars.append(StackedBar(run, role, total, tuple(part for part in parts if part.value)))
    return bars
