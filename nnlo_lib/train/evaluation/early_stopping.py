"""Early stopping and detection of the best validation, as functions of the validation rows; copy of the best weights."""

from collections.abc import Sequence
from math import isfinite
from statistics import fmean

import torch
from torch import Tensor

from nnlo_lib.config.stopping import EarlyStoppingConfig, WatchedMetricConfig
from nnlo_lib.config.train import TrainConfig
from nnlo_lib.state.training_records import TableRow
from nnlo_lib.train.replica.replica import Replica


def reason_to_stop(train: TrainConfig, rows: Sequence[TableRow]) -> str:
    """Return why the training ends after these validations (in order); empty if it continues."""
    target, rule = train.target, train.early_stopping
    if target and rows and target.metric in rows[-1]:
        value = float(rows[-1][target.metric])
        if value > target.value if target.larger_is_better else value < target.value:
            return f"target: {target.metric} {value:.6g} has passed {target.value:g}"
    return _waited(rule, _goals(rows, rule.metric, rule.larger_is_better)) if rule else ""


def _waited(rule: EarlyStoppingConfig, goals: list[float]) -> str:
    n = rule.patience
    if rule.smoothed:  # NNLO's rule (its process.py, 2019)
        if len(goals) >= 2 * n and fmean(goals[-n:]) > fmean(goals[-2 * n : -n]) + rule.min_delta:
            return f"early stopping: the mean of {rule.metric} over the last {n} validations is worse than over the previous {n}"
        return ""
    best, since = float("inf"), 0
    for goal in goals:
        # A NaN compares as not smaller, so it counts as no improvement.
        best, since = (goal, 0) if goal < best - rule.min_delta else (best, since + 1)
    return f"early stopping: {rule.metric} did not improve in {since} validations" if since >= n else ""


def is_best(rows: Sequence[TableRow], metric: str, wants_larger: bool) -> bool:
    """Return True if the last of the validations (in order) is the best; of equal values, the first is the best."""
    if not (rows and metric in rows[-1]):
        return False
    *before, last = _goals(rows, metric, wants_larger)
    # A NaN or infinite value is never the best, and it does not prevent a later value from being the best.
    return isfinite(last) and all(last < value for value in before if isfinite(value))


def _goals(rows: Sequence[TableRow], metric: str, wants_larger: bool) -> list[float]:
    """Return the values of a metric in the rows that have it, with the sign chosen so that smaller is better."""
    sign = -1.0 if wants_larger else 1.0
    return [sign * float(row[metric]) for row in rows if metric in row]


class BestWeights:
    """Keeps a copy of the model with the best value of a rule's metric; keeps no copy if the rule is None.

    Each rank copies its own replica: the model common to all ranks or, if replicas differ, its own model at
    the step with the best mean over nodes.
    """

    def __init__(self, rule: WatchedMetricConfig | None) -> None:
        self._rule = rule
        self._snapshot: dict[str, Tensor] = {}

    def is_improvement(self, rows: Sequence[TableRow]) -> bool:
        """Return True if the last evaluated model is the best so far."""
        rule = self._rule
        return rule is not None and is_best(rows, rule.metric, rule.larger_is_better)

    @property
    def step(self) -> int | None:
        """Step of the run at which the kept model was copied; None if there is no copy yet."""
        return int(self._snapshot["best.step"]) if self._snapshot else None

    def snapshot(self, replica: Replica, step: int, weight: float = 1.0) -> None:
        """Copy the model and this rank's weight in the mean over ranks that is published; 1 if all have equal weights."""
        self._snapshot = {
            "best.theta": replica.theta.clone(),
            "best.buffers": replica.buffers.clone(),
            "best.step": torch.tensor(step),
            "best.weight": torch.tensor([weight], dtype=torch.float64),
        }

    def restore(self, replica: Replica) -> float:
        """Restore the copy into the replica; return its weight in the mean over ranks."""
        replica.theta.copy_(self._snapshot["best.theta"])
        replica.buffers.copy_(self._snapshot["best.buffers"])
        return float(self._snapshot["best.weight"])

    def state(self) -> dict[str, Tensor]:
        """Return the tensors that a resumed run needs."""
        return self._snapshot

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        """Restore the tensors that `state` returned."""
        names = (name for name in tensors if name.startswith("best."))
        self._snapshot = {name: tensors[name].clone() for name in names}
