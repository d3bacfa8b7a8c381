"""Confusion matrices, summed over the jobs of a run."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nnlo_lib.core.errors import UserError
from nnlo_lib.report.finished_job import group_by_run
from nnlo_lib.report.formatting import listing
from nnlo_lib.state.finished_run import SPLIT_NAMES, FinishedRun

MAX_SHOWN_CLASSES = 20  # classes; a larger matrix is not readable on a page
MAX_PAIRS = 5  # pairs of classes


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


def evaluated_on(jobs: Iterable[FinishedRun]) -> str:
    """Return on which samples the models with a confusion matrix were evaluated: `on the test split`."""
    splits = {job.evaluation_split for job in jobs if job.evaluation.get("confusion")}
    # Sorted, because equal inputs must give equal pages.
    return listing([f"on {SPLIT_NAMES.get(split, split)}" for split in sorted(splits)]) if splits else ""


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
