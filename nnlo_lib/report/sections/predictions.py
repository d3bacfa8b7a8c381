"""Predictions of the models: confusion matrices, the nodes' own models and their consensus, and images of GANs."""

from base64 import b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from nnlo_lib.config.stopping import better_direction
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.text_format import MISSING, number
from nnlo_lib.report.formatting import RunTable, listing, percent, plus_minus, run_table
from nnlo_lib.report.sections.origin import published_epoch
from nnlo_lib.report.tables import group_by_run, spread_of
from nnlo_lib.state.finished_run import SPLIT_NAMES, FinishedRun

MAX_SHOWN_CLASSES = 20  # classes; a larger matrix is not readable on a page
MAX_PAIRS = 5  # pairs of classes
MAX_SHOWN_NODES = 20  # nodes; a larger matrix is not readable on a page
DISTANCES = {"consensus_error": "distance to mean", "consensus_error_normalised": "normalized"}


@dataclass(frozen=True)
class ConfusionMatrix:
    """Number of samples by true class (row) and predicted class (column)."""

    run: str
    classes: tuple[str, ...]
    counts: NDArray[np.int64]

    @property
    def readable(self) -> bool:
        """Whether the matrix is small enough to be shown."""
        return len(self.classes) <= MAX_SHOWN_CLASSES

    @property
    def shares(self) -> NDArray[np.float64]:
        """Counts divided by the number of samples of the true class."""
        # A class without samples would divide by zero.
        totals = self.counts.sum(axis=1, keepdims=True)
        shares: NDArray[np.float64] = self.counts / np.maximum(totals, 1)
        return shares

    def pairs(self) -> list[tuple[str, str, int, float]]:
        """Return the most frequent errors: true class, predicted class, count, share of the true class."""
        wrong = self.counts - np.diag(np.diag(self.counts))
        # A stable sort, because equal inputs must give equal pages.
        order = np.argsort(-wrong, axis=None, kind="stable")[:MAX_PAIRS]
        places = [divmod(int(place), len(self.classes)) for place in order]
        # A single misclassified sample may be chance: such pairs are shown only if no pair is more frequent.
        min_count = min(2, wrong.max())
        return [
            (
                self.classes[true],
                self.classes[guess],
                int(wrong[true, guess]),
                float(self.shares[true, guess]),
            )
            for true, guess in places
            if wrong[true, guess] >= max(1, min_count)
        ]


def confusion_matrices(jobs: Sequence[FinishedRun]) -> list[ConfusionMatrix]:
    """Return the summed matrix of each run that has one.

    Raises UserError if a matrix does not fit its number of classes, or sizes differ between jobs of a run.
    """
    known = [job for job in jobs if job.evaluation.get("confusion")]
    return [_sum(run, group) for run, group in group_by_run(known).items()]


def _sum(run: str, jobs: Iterable[FinishedRun]) -> ConfusionMatrix:
    total: NDArray[np.int64] | None = None
    for job in jobs:
        counts = np.array(job.evaluation["confusion"])
        classes = tuple(map(str, job.evaluation.get("classes") or range(len(counts))))
        if counts.shape != (len(classes), len(classes)) or (
            total is not None and total.shape != counts.shape
        ):
            raise UserError(
                f"{job.paths.evaluation}: the confusion matrix of shape {counts.shape} does not match its "
                f"{len(classes)} classes or the matrices of other jobs of the run"
            )
        total = counts if total is None else total + counts
    assert total is not None
    return ConfusionMatrix(run, classes, total)


def evaluated_on(jobs: Iterable[FinishedRun]) -> str:
    """Return on which samples the models with a confusion matrix were evaluated: `on the test split`."""
    splits = {job.evaluation_split for job in jobs if job.evaluation.get("confusion")}
    # Sorted, because equal inputs must give equal pages.
    return listing([f"on {SPLIT_NAMES.get(split, split)}" for split in sorted(splits)]) if splits else ""


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


def _span(metric: str, rows: pd.DataFrame) -> NodeMetricRange:
    # Each row has the minimum and maximum over the nodes of one job.
    low, high = rows[f"val_{metric}_min"].min(), rows[f"val_{metric}_max"].max()
    worst, best = (low, high) if better_direction(metric) == "larger" else (high, low)
    return NodeMetricRange(metric, int(rows["ranks"].max()), rows[f"val_{metric}_mean"].mean(), worst, best)


def runs_with_node_models(jobs: Sequence[FinishedRun]) -> list[str]:
    """Return the runs in which each node keeps its own model."""
    runs = group_by_run(jobs)
    return [run for run in runs if any(name in job.history for job in runs[run] for name in DISTANCES)]


def consensus_table(jobs: Sequence[FinishedRun], found: dict[str, NodeMetricRange]) -> RunTable:
    """Return graph, spectral gap, final metrics and distances of the nodes, by run."""
    return run_table(
        {
            run: {
                **_graph(group),
                **(_final_metrics(found[run]) if run in found else {}),
                **_distances(group),
            }
            for run, group in group_by_run(jobs).items()
        }
    )


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


@dataclass(frozen=True)
class ConsensusMatrix:
    """L2 distance of each pair of nodes at the step of the published weights, in the first training task of a run."""

    run: str
    distances: NDArray[np.float64]

    @property
    def readable(self) -> bool:
        """Whether the matrix is small enough to be shown."""
        return len(self.distances) <= MAX_SHOWN_NODES

    @property
    def shares(self) -> NDArray[np.float64]:
        """Distances divided by the largest one."""
        shares: NDArray[np.float64] = self.distances / (self.distances.max(initial=0) or 1)
        return shares

    @property
    def texts(self) -> list[list[str]]:
        """Distances as text."""
        return [[number(value) for value in row] for row in self.distances.tolist()]


def consensus_matrices(jobs: Sequence[FinishedRun]) -> list[ConsensusMatrix]:
    """Return the matrix of each run that has one.

    Raises UserError if a matrix is not square, or is missing in its file.
    """
    known = group_by_run([job for job in jobs if job.paths.consensus.exists()])
    return [ConsensusMatrix(run, _distance_matrix(group[0])) for run, group in known.items()]


def _distance_matrix(job: FinishedRun) -> NDArray[np.float64]:
    step = job.summary.get("published_step") or int(job.history["step"].iloc[-1])
    found = job.consensus.get(f"distance_{step}", np.zeros(0))
    if found.ndim != 2 or found.shape[0] != found.shape[1]:
        raise UserError(
            f"{job.paths.consensus} is damaged: it has no square array distance_{step}; train the task again"
        )
    return found


@dataclass(frozen=True)
class SampleImage:
    """The sample sheet of the first job of a run that has one; `source` is the data URL of an HTML image."""

    run: str
    seed: int
    source: str


def sample_images(jobs: Sequence[FinishedRun]) -> list[SampleImage]:
    """Return an image for each run that has a sample sheet. Raises UserError if a sheet cannot be read."""
    drawn = [job for job in jobs if job.paths.samples.exists()]
    return [_picture(run, group[0]) for run, group in group_by_run(drawn).items()]


def _picture(run: str, job: FinishedRun) -> SampleImage:
    try:
        content = job.paths.samples.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {job.paths.samples}: {error}") from error
    return SampleImage(run, job.summary["seed"], f"data:image/png;base64,{b64encode(content).decode()}")
