"""The weights that validated best, kept while a training goes on."""

from collections.abc import Sequence

import torch
from torch import Tensor

from nnlo_lib.config.stopping import better_direction
from nnlo_lib.state.jsonl_table import TableRow
from nnlo_lib.train.evaluation.early_stopping import is_best
from nnlo_lib.train.replica.replica import Replica


class BestWeights:
    """Keeps a copy of the model that measured best by `metric`; with None nothing.

    Each rank keeps its own: the same one, or what its node had when the mean over nodes was best.
    """

    def __init__(self, metric: str | None) -> None:
        self._metric = metric
        self._snapshot: dict[str, Tensor] = {}

    def is_improvement(self, rows: Sequence[TableRow]) -> bool:
        """Return whether the model that was measured last is the best so far."""
        return self._metric is not None and is_best(
            rows, self._metric, better_direction(self._metric) == "larger"
        )

    @property
    def step(self) -> int | None:
        """The step of the run whose model is kept; None while there is none."""
        return int(self._snapshot["best.step"]) if self._snapshot else None

    def snapshot(self, replica: Replica, step: int, weight: float = 1.0) -> None:
        """Copy the model of a step, and its part of the mean of all ranks'."""
        self._snapshot = {
            "best.theta": replica.theta.clone(),
            "best.buffers": replica.buffers.clone(),
            "best.step": torch.tensor(step),
            "best.weight": torch.tensor([weight], dtype=torch.float64),
        }

    def restore(self, replica: Replica) -> float:
        """Go back to the copy; return its part of the mean."""
        replica.theta.copy_(self._snapshot["best.theta"])
        replica.buffers.copy_(self._snapshot["best.buffers"])
        return float(self._snapshot["best.weight"])

    def state(self) -> dict[str, Tensor]:
        """Return what a resumed run needs."""
        return self._snapshot

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        """Restore what `state` returned."""
        self._snapshot = {
            name: tensor.clone() for name, tensor in tensors.items() if name.startswith("best.")
        }
