"""What a run needs of its targets: probabilities for some losses, and the weight of each class in the loss; imports no torch."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnlo_lib.config import Run
from nnlo_lib.config.base import suggest_name
from nnlo_lib.config.problem import DenseClassificationConfig
from nnlo_lib.core.errors import UserError

Array = NDArray[Any]
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


def check_target_range(run: Run, shards: Iterable[Array], split: str) -> None:
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


def check_mixture(run: Run, classes: int | None, inputs: Iterable[Any]) -> None:
    """Raise UserError if samples of these inputs (with name, dtype and shape) cannot be mixed as the run wants."""
    for key in ("mixup", "cutmix"):
        if not getattr(run.problem, key, 0):
            continue
        if classes is None:
            raise UserError(
                f"problem.{key}: the labels of {run.data.dataset} are no classes; remove this key"
            )
        for each in inputs:
            if each.dtype in ("int32", "int64"):
                raise UserError(
                    f"problem.{key}: the indices of {each.name} ({each.dtype}) have no mean; remove this key"
                )
            if key == "cutmix" and len(each.shape) != 3:
                raise UserError(
                    f"problem.cutmix: {each.name} has the shape {tuple(each.shape)}, but only images have rectangles; set "
                    "`problem.mixup` instead"
                )


def class_weights(run: Run, names: Sequence[str], labels: Array | None = None) -> Array | None:
    """Return the weight of each class in the loss of the training, (classes,) float64; None if the run sets none.

    `balanced` is n / (k n_c) for n labels, n_c of class c, and k classes that occur, as in scikit-learn's compute_class_weight.
    A class that does not occur has weight 1.

    Args:
        names: names of the classes of the data, or their numbers; empty if the labels are no classes.
        labels: classes from 0 of all training samples, whichever worker has them; None to check the names alone.

    Raises UserError if the labels are no classes, or if a class does not exist.
    """
    wanted, problem, at = getattr(run.problem, "class_weights", None), run.problem, "problem.class_weights"
    if wanted is None:
        return None
    if isinstance(problem, DenseClassificationConfig):
        names = names or [str(number) for number in range(problem.classes)]
        labels = None if labels is None else labels[labels != problem.ignore_index]
    if not names:
        raise UserError(f"{at}: the labels of {run.data.dataset} are no classes; remove this key")
    weights = np.ones(len(names))
    if wanted == "balanced":
        if labels is not None:
            # The loss refuses labels beyond the classes.
            counts = np.bincount(
                labels[(labels >= 0) & (labels < len(names))].astype(np.int64), minlength=len(names)
            )
            occurs = counts > 0
            weights[occurs] = counts.sum() / (occurs.sum() * counts[occurs])
        return weights
    for name, weight in wanted.items():
        if name not in names:
            hint = suggest_name(name, names)
            listed = f" (the classes are {', '.join(names)})" if hint.endswith("?") else ""
            raise UserError(f"{at}: no class '{name}'; {hint}{listed}")
        weights[names.index(name)] = weight
    return weights
