"""Pace of trainings, from which the duration of further trainings is estimated."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from nnlo_lib.search.study.snapshot import StudySnapshot
from nnlo_lib.search.study.trial import FoldTask, Result


@dataclass(frozen=True)
class Pace:
    """Measured pace of trainings, in seconds of the wall clock.

    Attributes:
        startup_s: seconds from the start of a job to its first step.
        epoch_s: seconds per epoch, without start-up.
    """

    startup_s: float
    epoch_s: float

    def seconds(self, jobs: int, epochs: int) -> float:
        """Return the estimated seconds of some jobs that train `epochs` epochs together."""
        return jobs * self.startup_s + epochs * self.epoch_s

    def __str__(self) -> str:
        start = f" and {self.startup_s:.3g} s per start" if self.startup_s else ""
        return f"{self.epoch_s:.3g} s per epoch{start}"


def search_pace(known: StudySnapshot, virtual: bool) -> Pace | None:
    """Return the mean pace of the finished fold tasks of a search; None without any.

    Args:
        known: snapshot of the study.
        virtual: whether the seconds of the history are of a simulated clock, so that they measure nothing.
    """
    done = [result for result in known.results.values() if result.status == "finished"]
    if not done:
        return None
    epochs = [result.fold_task.epochs - _rung_below(known, result.fold_task) for result in done]
    in_epochs = [0.0 if virtual else trained_seconds(known, result) for result in done]
    rest = [max(0.0, result.seconds - seconds) for result, seconds in zip(done, in_epochs, strict=True)]
    startup, more = _fixed_and_by_epoch(rest, epochs, all_by_epoch=virtual)
    return Pace(startup, sum(in_epochs) / sum(epochs) + more)


def trained_seconds(known: StudySnapshot, result: Result) -> float:
    """Return the seconds of training steps of a fold task, as its history records them."""
    task = result.fold_task
    below = known.results.get(FoldTask(task.trial, task.fold, _rung_below(known, task)))
    # `seconds` of the history continue over rungs: a fold task resumes the training of the rung below.
    last = [each.rows[-1]["seconds"] if each and each.rows else 0.0 for each in (result, below)]
    return max(0.0, last[0] - last[1])


def _rung_below(known: StudySnapshot, task: FoldTask) -> int:
    """Return the epochs of the next lower rung, at which the training of a fold task begins; 0 without one."""
    return max((rung for rung in known.rungs(task.trial) if rung < task.epochs), default=0)


def _fixed_and_by_epoch(
    rest: Sequence[float], epochs: Sequence[int], all_by_epoch: bool
) -> tuple[float, float]:
    """Return the fixed seconds of a job and the seconds by epoch, such as of validations, by least squares.

    Args:
        rest: seconds of each fold task outside of training steps.
        epochs: epochs of each fold task.
        all_by_epoch: whether seconds count by epoch if all fold tasks have the same number of epochs.
    """
    if len(set(epochs)) == 1:
        return (0.0, sum(rest) / sum(epochs)) if all_by_epoch else (fmean(rest), 0.0)
    slope, fixed = np.polyfit(epochs, rest, 1)
    # Neither part can be negative; the other one then explains all.
    if slope < 0:
        return fmean(rest), 0.0
    return (float(fixed), float(slope)) if fixed >= 0 else (0.0, sum(rest) / sum(epochs))
