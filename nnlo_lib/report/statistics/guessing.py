"""Trainings whose model is not better than always naming the most frequent class."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from nnlo_lib.report.formatting import listing, percent
from nnlo_lib.state.finished_run import FinishedRun

MAX_NAMED_TASKS = 5  # training tasks in the sentence; more are counted
STANDARD_ERRORS = 2.0  # above the share of the most frequent class, within which an accuracy is no better


def guessing_level(evaluation: Mapping[str, Any]) -> float | None:
    """Return the share of the most frequent class if the accuracy is not clearly above it, else None.

    Args:
        evaluation: content of evaluation.json.
    """
    accuracy, confusion = evaluation.get("accuracy"), evaluation.get("confusion")
    if accuracy is None or not confusion or not (samples := sum(map(sum, confusion))):
        return None
    share = max(map(sum, confusion)) / samples
    error = math.sqrt(share * (1 - share) / samples)
    return share if accuracy <= share + STANDARD_ERRORS * error else None


def guessing_note(evaluation: Mapping[str, Any]) -> str:
    """Return the words for the last line of a training at guessing level; else an empty string."""
    share = guessing_level(evaluation)
    if share is None:
        return ""
    return (
        f"warning: guessing level: always naming the most frequent class has accuracy {share:.4f}; "
        "try a smaller learning rate, more epochs or other settings of the algorithm"
    )


def guessing_sentence(jobs: Sequence[FinishedRun]) -> str:
    """Return a sentence that names the trainings at guessing level; an empty string if there are none."""
    levels = {job.folder: guessing_level(job.evaluation) for job in jobs}
    found = [(job, share) for job in jobs if (share := levels[job.folder]) is not None]
    if not found:
        return ""
    names = [_named(job, share) for job, share in found[:MAX_NAMED_TASKS]]
    more = [f"{len(found) - MAX_NAMED_TASKS} more"] * (len(found) > MAX_NAMED_TASKS)
    return f"At guessing level, not better than always naming the most frequent class: {listing([*names, *more])}."


def _named(job: FinishedRun, share: float) -> str:
    fold = "" if job.key[2] is None else f", fold {job.key[2]}"
    return f"{job.run} seed {job.key[1]}{fold} ({percent(float(job.evaluation['accuracy']))} against {percent(share)})"
