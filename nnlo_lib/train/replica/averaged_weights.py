"""Averages of a replica's weights, which are evaluated and published in place of the weights that it trains."""

from typing import Any

import torch
from torch import Tensor

from nnlo_lib.config.train import EmaConfig
from nnlo_lib.train.replica.replica import Replica


class AveragedWeights:
    """Exponential moving average of parameters and batch-norm statistics (`train.ema`), or the average of the optimizer.

    The average begins with the weights after the first step. In step t, counted from 0, its decay is at most
    (1 + t) / (10 + t). A schedule-free optimizer keeps its average of the parameters itself, as a vector of its state.
    """

    def __init__(self, replica: Replica, ema: EmaConfig | None) -> None:
        self._replica, self._ema = replica, ema
        self._average: dict[str, Tensor] = {}

    def update(self) -> None:
        """Add the weights after a step to the average."""
        if self._ema is None:
            return
        if not self._average:
            self._average = {f"ema.{name}": vector.clone() for name, vector in self._vectors.items()}
            self._average["ema.updates"] = torch.tensor(0)
        done = int(self._average["ema.updates"])
        decay = min(self._ema.decay, (1 + done) / (10 + done))
        for name, vector in self._vectors.items():
            self._average[f"ema.{name}"].lerp_(vector, 1 - decay)
        self._average["ema.updates"] += 1

    def exchange(self) -> None:
        """Exchange the weights and their average, before an evaluation and after it."""
        optimizer: Any = self._replica.optimizer
        # A schedule-free optimizer has no state before the first step.
        states = optimizer.state.values() if hasattr(optimizer, "evaluated") else ()
        own = next((state[optimizer.evaluated] for state in states if state), None)
        averages = {"ema.theta": own} | self._average
        for name, vector in self._vectors.items():
            if (average := averages.get(f"ema.{name}")) is not None:
                # Copied, because the layers are views of the vector.
                trained = vector.clone()
                vector.copy_(average)
                average.copy_(trained)

    @property
    def _vectors(self) -> dict[str, Tensor]:
        return {"theta": self._replica.theta, "buffers": self._replica.buffers}

    def state(self) -> dict[str, Tensor]:
        """Return the tensors that a resumed run needs."""
        return self._average

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        """Restore the tensors that `state` returned."""
        self._average = {
            name: tensor.to(self._replica.theta.device if tensor.dim() else "cpu", copy=True)
            for name, tensor in tensors.items()
            if name.startswith("ema.")
        }
