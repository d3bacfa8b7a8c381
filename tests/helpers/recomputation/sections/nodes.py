"""Recomputation of the consensus of the nodes."""

from statistics import fmean

from helpers.recomputation.audit import Audit
from helpers.recomputation.quantity import spread
from helpers.recomputation.raw import Job, Trainings
from helpers.recomputation.sections.sheet import check_sheet

LARGER_IS_BETTER = ("accuracy",)
DISTANCES = {"distance to mean": "consensus_error", "normalized": "consensus_error_normalised"}


def node_range(jobs: list[Job], metric: str) -> tuple[float, int, float, float]:
    """Return the mean over nodes and trainings, the number of nodes, and the worst and the best node of any training."""
    last = [job.published for job in jobs]
    low, high = min(row[f"val_{metric}_min"] for row in last), max(row[f"val_{metric}_max"] for row in last)
    worst, best = (low, high) if metric.endswith(LARGER_IS_BETTER) else (high, low)
    return fmean(row[f"val_{metric}"] for row in last), jobs[0].summary["ranks"], worst, best


def check_nodes(audit: Audit, raw: Trainings) -> None:
    """Compare the table of node models with the histories."""
    check_sheet(
        audit,
        "nodes",
        raw,
        lambda heading, jobs: _value(heading, jobs, "accuracy" if raw.accuracy else "loss"),
    )


def _value(heading: str, jobs: list[Job], metric: str) -> object:
    if heading == "graph":
        return str(jobs[0].summary["config"]["topology"]["name"])
    if heading == "spectral gap":
        return _varying([job.summary["spectral_gap"] for job in jobs])
    if heading in DISTANCES:
        name = DISTANCES[heading]
        return _varying([job.published[name] for job in jobs]) if name in jobs[0].published else None
    if f"val_{metric}_min" not in jobs[0].history[-1]:
        return None
    mean, nodes, worst, best = node_range(jobs, metric)
    return {"nodes": nodes, f"validation {metric}": mean, "worst node": worst, "best node": best}[heading]


def _varying(values: list[float]) -> object:
    return values[0] if len(set(values)) == 1 else spread(values)
