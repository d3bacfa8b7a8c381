"""Graph and consensus of the nodes, for runs in which each node keeps its own model."""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from nnlo_lib.config.stopping import better_direction
from nnlo_lib.core.text_format import MISSING, number
from nnlo_lib.report.finished_job import group_by_run
from nnlo_lib.report.formatting import RunTable, percent, plus_minus, run_table
from nnlo_lib.report.sections.origin.published_weights import published_epoch
from nnlo_lib.report.tables import spread_of
from nnlo_lib.state.finished_run import FinishedRun

DISTANCES = {"consensus_error": "distance to mean", "consensus_error_normalised": "normalized"}


@dataclass(frozen=True)
class NodeMetricRange:
    """A validation metric of node models: mean over nodes and jobs; worst and best node of any job."""

    metric: str
    nodes: int
    mean: float
    worst: float
    best: float

    def __str__(self) -> str:
        ends = f"worst {self.format_value(self.worst)}, best {self.format_value(self.best)}"
        return f"{self.format_value(self.mean)}, mean over {self.nodes} nodes ({ends})"

    def format_value(self, value: float) -> str:
        """Format a value of the metric."""
        return percent(value) if self.metric.endswith("accuracy") else number(value)


def node_metric_ranges(table: pd.DataFrame, metric: str) -> dict[str, NodeMetricRange]:
    """Return the final validation metric of the nodes' own models, for each run with node models."""
    names = [f"val_{metric}{end}" for end in ("", "_min", "_max")]
    if not set(names) <= set(table):
        return {}
    known = table.dropna(subset=names)
    # Summaries of older versions have the mean over nodes in the column of the published weights.
    mean = f"val_{metric}_mean"
    known = known.assign(**{mean: known[mean].fillna(known[names[0]]) if mean in known else known[names[0]]})
    return {str(run): _span(metric, rows) for run, rows in known.groupby("run", sort=False)}


def runs_with_node_models(jobs: Sequence[FinishedRun]) -> list[str]:
    """Return the runs in which each node keeps its own model."""
    runs = group_by_run(jobs)
    return [run for run in runs if any(name in job.history for job in runs[run] for name in DISTANCES)]


def consensus_table(jobs: Sequence[FinishedRun], found: dict[str, NodeMetricRange]) -> RunTable:
    """Return graph, spectral gap, final metrics and distances of the nodes, by run."""
    return run_table({run: _row(group, found.get(run)) for run, group in group_by_run(jobs).items()})


def _span(metric: str, rows: pd.DataFrame) -> NodeMetricRange:
    # Each row has the minimum and maximum over the nodes of one job.
    low, high = rows[f"val_{metric}_min"].min(), rows[f"val_{metric}_max"].max()
    worst, best = (low, high) if better_direction(metric) == "larger" else (high, low)
    return NodeMetricRange(metric, int(rows["ranks"].max()), rows[f"val_{metric}_mean"].mean(), worst, best)


def _row(jobs: Sequence[FinishedRun], span: NodeMetricRange | None) -> dict[str, str]:
    return {**_graph(jobs), **(_final_metrics(span) if span else {}), **_distances(jobs)}


def _graph(jobs: Sequence[FinishedRun]) -> dict[str, str]:
    gaps = [job.summary["spectral_gap"] for job in jobs if job.summary.get("spectral_gap") is not None]
    name = jobs[0].config_section("topology").get("name", MISSING)
    # Only runs on a graph have a spectral gap; a random graph differs between seeds.
    return {"graph": str(name), "spectral gap": _format_values(gaps)} if gaps else {}


def _final_metrics(span: NodeMetricRange) -> dict[str, str]:
    name = f"validation {span.metric}"
    return {
        "nodes": str(span.nodes),
        name: span.format_value(span.mean),
        "worst node": span.format_value(span.worst),
        "best node": span.format_value(span.best),
    }


def _distances(jobs: Sequence[FinishedRun]) -> dict[str, str]:
    rows = [row for job in jobs if (row := published_epoch(job)) is not None]
    ends = {name: [row[name] for row in rows if name in row] for name in DISTANCES}
    return {DISTANCES[name]: _format_values(values) for name, values in ends.items() if values}


def _format_values(values: Sequence[float]) -> str:
    return number(values[0]) if len(set(values)) == 1 else plus_minus(spread_of(values))
