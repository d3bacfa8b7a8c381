"""The weights that validated best, kept while a training goes on."""

from collections.abc import Sequence

import torch
from torch import Tensor

from nnlo_lib.config.stopping import better_of
from nnlo_lib.state.history import Row
from nnlo_lib.train.measure.stopping import is_best
from nnlo_lib.train.replica.replica import Replica


class Best:
    """Keeps a copy of the model that measured best by `metric`; with None nothing.

    Each rank keeps its own: the same one, or what its node had when the mean over nodes was best.
    """

    def __init__(self, metric: str | None) -> None:
        self._metric = metric
        self._kept: dict[str, Tensor] = {}

    def wants(self, rows: Sequence[Row]) -> bool:
        """Return whether the model that was measured last is the best so far."""
        return self._metric is not None and is_best(rows, self._metric, better_of(self._metric) == "larger")

    @property
    def step(self) -> int | None:
        """The step of the run whose model is kept; None while there is none."""
        return int(self._kept["best.step"]) if self._kept else None

    def keep(self, replica: Replica, step: int, weight: float = 1.0) -> None:
        """Copy the model of a step, and its part of the mean of all ranks'."""
        self._kept = {
            "best.theta": replica.theta.clone(),
            "best.buffers": replica.buffers.clone(),
            "best.step": torch.tensor(step),
            "best.weight": torch.tensor([weight], dtype=torch.float64),
        }

    def restore(self, replica: Replica) -> float:
        """Go back to the copy; return its part of the mean."""
        replica.theta.copy_(self._kept["best.theta"])
        replica.buffers.copy_(self._kept["best.buffers"])
        return float(self._kept["best.weight"])

    def state(self) -> dict[str, Tensor]:
        """Return what a resumed run needs."""
        return self._kept

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        """Restore what `state` returned."""
        self._kept = {name: tensor.clone() for name, tensor in tensors.items() if name.startswith("best.")}
