"""What algorithms share whose nodes agree with their neighbours only."""

import torch
from torch import Tensor

from nnlo_lib.algorithms.algorithm import Algorithm, Model, Share, relative_error
from nnlo_lib.algorithms.neighbourhood import Neighbourhood


class NeighbourAlgorithm(Algorithm):
    """Let every node keep a model of its own; `around` is what it hears. The mean is published at the end."""

    apart = True

    def __init__(self, around: Neighbourhood) -> None:
        super().__init__(around.comm)
        self.around = around

    def start(self, replica: Model) -> None:
        super().start(replica)
        self.around.begin(replica.theta)

    def on_gradient(self, replica: Model, share: Share) -> None:
        pass

    def on_epoch(self, replica: Model) -> None:
        pass

    def state(self) -> dict[str, Tensor]:
        return {f"neighbour.{name}": tensor for name, tensor in self.tensors().items()} | self.around.state()

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        self.around.load_state(tensors)
        for name, tensor in self.tensors().items():
            tensor.copy_(tensors[f"neighbour.{name}"])

    def tensors(self) -> dict[str, Tensor]:
        """Return the node's own tensors beside its parameters, such as duals or trackers, to save and restore."""
        return {}


class Mixing(NeighbourAlgorithm):
    """Remember what mixing moved each node since the last telemetry: over all nodes nothing, if it keeps the mean."""

    def start(self, replica: Model) -> None:
        super().start(replica)
        self._moved = torch.zeros_like(replica.theta)

    def move(self, replica: Model, change: Tensor) -> None:
        """Change the node's parameters by mixing."""
        replica.theta.add_(change)
        self._moved.add_(change)

    def telemetry(self, replica: Model) -> dict[str, float]:
        """Sum up what was moved; a new sum is begun, so that rounding does not add up over epochs."""
        error = relative_error(self.comm, self._moved, replica.theta)
        self._moved.zero_()
        return {"invariant": error}

    def tensors(self) -> dict[str, Tensor]:
        return {"moved": self._moved}
