"""How the nodes are linked and how well they agree, where each keeps a model of its own."""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from nnlo_lib.config.stopping import better_of
from nnlo_lib.report.job import Job, by_run
from nnlo_lib.report.sheet import Sheet, sheet
from nnlo_lib.report.tables import spread_of
from nnlo_lib.report.words import MISSING, number, percent, plus_minus

DISTANCES = {"consensus_error": "distance to mean", "consensus_error_normalised": "normalised"}


@dataclass(frozen=True)
class Span:
    """A metric of the nodes' own models on validation data: its mean, and the worst and best node of any job."""

    metric: str
    nodes: int
    mean: float
    worst: float
    best: float

    def __str__(self) -> str:
        ends = f"worst {self.say(self.worst)}, best {self.say(self.best)}"
        return f"{self.say(self.mean)}, mean over {self.nodes} nodes ({ends})"

    def say(self, value: float) -> str:
        """Write a value of the metric."""
        return percent(value) if self.metric.endswith("accuracy") else number(value)


def spans(table: pd.DataFrame, metric: str) -> dict[str, Span]:
    """Return what the nodes' own models reach at the end, of each run that has such."""
    names = [f"val_{metric}{end}" for end in ("", "_min", "_max")]
    if not set(names) <= set(table):
        return {}
    known = table.dropna(subset=names)
    return {str(run): _span(metric, rows) for run, rows in known.groupby("run", sort=False)}


def own_models(jobs: Sequence[Job]) -> list[str]:
    """Return the runs whose nodes keep models of their own."""
    runs = by_run(jobs)
    return [run for run in runs if any(name in job.history for job in runs[run] for name in DISTANCES)]


def agreement(jobs: Sequence[Job], found: dict[str, Span]) -> Sheet:
    """Return the graph of each run that has one, and how well its nodes agree at the end."""
    return sheet({run: _row(group, found.get(run)) for run, group in by_run(jobs).items()})


def _span(metric: str, rows: pd.DataFrame) -> Span:
    low, high = rows[f"val_{metric}_min"].min(), rows[f"val_{metric}_max"].max()
    worst, best = (low, high) if better_of(metric) == "larger" else (high, low)
    return Span(metric, int(rows["ranks"].max()), rows[f"val_{metric}"].mean(), worst, best)


def _row(jobs: Sequence[Job], span: Span | None) -> dict[str, str]:
    return {**_graph(jobs), **(_reached(span) if span else {}), **_distances(jobs)}


def _graph(jobs: Sequence[Job]) -> dict[str, str]:
    gaps = [job.summary["spectral_gap"] for job in jobs if job.summary.get("spectral_gap") is not None]
    name = jobs[0].setting("topology").get("name", MISSING)
    return {"graph": str(name), "spectral gap": _said(gaps)} if gaps else {}


def _reached(span: Span) -> dict[str, str]:
    name = f"validation {span.metric}"
    return {
        "nodes": str(span.nodes),
        name: span.say(span.mean),
        "worst node": span.say(span.worst),
        "best node": span.say(span.best),
    }


def _distances(jobs: Sequence[Job]) -> dict[str, str]:
    ends = {name: [job.history[name].iloc[-1] for job in jobs if name in job.history] for name in DISTANCES}
    return {DISTANCES[name]: _said(values) for name, values in ends.items() if values}


def _said(values: Sequence[float]) -> str:
    return number(values[0]) if len(set(values)) == 1 else plus_minus(spread_of(values))
