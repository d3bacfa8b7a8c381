"""Check that the targets of losses of probabilities are probabilities; imports no torch."""

from collections.abc import Collection, Iterable
from typing import Any

import numpy as np

from nnlo_lib.config import Run
from nnlo_lib.core.errors import UserError

# Losses and metrics that are unbounded below, or meaningless, for targets outside of 0..1.
PROBABILITY_LOSSES = {
    "classification": ("cross_entropy", "binary_cross_entropy", "hinge"),
    "regression": ("binary_cross_entropy",),
}
METRIC_REMEDY = "scale the targets, or remove the metric"
REMEDIES = {
    "classification": "scale the targets, or set problem: regression if they are numbers to predict",
    "regression": "scale the targets, or use another loss, such as mse",
}


def measured_splits(run: Run, splits: Collection[str]) -> list[str]:
    """Return the splits whose targets a loss or metric of the run reads, if the labels are no classes.

    These are the training split, the split of `data.validation`, and the split that evaluates the model.
    """
    used = {"train", run.data.validation, "test" if "test" in splits else "validation"}
    return [split for split in splits if split in used]


def check_target_range(run: Run, shards: Iterable[np.ndarray[Any, Any]], split: str) -> None:
    """Raise UserError if a loss or metric of the run needs targets from 0 to 1, and a sample has another one.

    `shards` are labels that are no classes, in consecutive parts (samples, ...); they are read only for these losses.
    """
    losses = list(run.loss.values()) if isinstance(run.loss, dict) else [run.loss]
    metrics = [metric.partition("@")[0] for metric in run.metrics]
    used = [*(("loss", name) for name in losses), *(("metrics", name) for name in metrics)]
    first, bounded = 0, PROBABILITY_LOSSES.get(run.problem.name, ())
    for where, name in [each for each in used if each[1] in bounded][:1]:
        remedy = REMEDIES[run.problem.name] if where == "loss" else METRIC_REMEDY
        for targets in shards:
            rows = targets.reshape(len(targets), -1)
            # NaN compares as False; data.reader.non_finite decides on NaN.
            wrong = (rows < 0) | (rows > 1)
            for sample in np.flatnonzero(wrong.any(1))[:1]:
                raise UserError(
                    f"{where}: {name} needs targets from 0 to 1, but sample {first + sample} of the {split} split has "
                    f"{rows[sample][wrong[sample]][0]:g}; {remedy}"
                )
            first += len(targets)
