"""Copy of the weights with the best validation result."""

from collections.abc import Sequence

import torch
from torch import Tensor

from nnlo_lib.config.stopping import WatchedMetricConfig
from nnlo_lib.state.jsonl_table import TableRow
from nnlo_lib.train.evaluation.early_stopping import is_best
from nnlo_lib.train.replica.replica import Replica


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
        """Copy the model and this rank's weight in the mean over ranks that is published.

        Args:
            replica: replica of this rank, loaded with the evaluated model.
            step: step of the run.
            weight: weight of this rank's model in the mean; 1 if all ranks have equal weights.
        """
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
        self._snapshot = {
            name: tensor.clone() for name, tensor in tensors.items() if name.startswith("best.")
        }
