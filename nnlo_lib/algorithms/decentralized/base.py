"""What algorithms share whose nodes agree with their neighbours only."""

from typing import Any

import torch
from torch import Tensor

from nnlo_lib.algorithms.base import Algorithm, ReplicaView, SampleShare, relative_error
from nnlo_lib.algorithms.context import AlgorithmContext
from nnlo_lib.algorithms.decentralized.neighbor_exchange import NeighborExchange


class DecentralizedAlgorithm(Algorithm):
    """Let every node keep a model of its own; `around` is what it hears. The mean is published at the end."""

    replicas_differ = True

    def __init__(self, around: NeighborExchange) -> None:
        super().__init__(around.comm)
        self.neighbors = around

    @classmethod
    def from_config(cls, config: Any, context: AlgorithmContext) -> Algorithm:
        """Return the algorithm; its settings are keyword arguments of the class."""
        return cls(context.neighbors, **config.arguments)

    def start(self, replica: ReplicaView) -> None:
        super().start(replica)
        self.neighbors.set_initial(replica.theta)

    def on_gradient(self, replica: ReplicaView, share: SampleShare) -> None:
        pass

    def before_evaluation(self, replica: ReplicaView) -> None:
        pass

    def state(self) -> dict[str, Tensor]:
        return {
            f"neighbour.{name}": tensor for name, tensor in self.state_tensors().items()
        } | self.neighbors.state()

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        self.neighbors.load_state(tensors)
        for name, tensor in self.state_tensors().items():
            tensor.copy_(tensors[f"neighbour.{name}"])

    def state_tensors(self) -> dict[str, Tensor]:
        """Return the node's own tensors beside its parameters, such as duals or trackers, to save and restore."""
        return {}


class MixingAlgorithm(DecentralizedAlgorithm):
    """Remember what mixing moved each node since the last telemetry: over all nodes nothing, if it keeps the mean."""

    def start(self, replica: ReplicaView) -> None:
        super().start(replica)
        self._moved = torch.zeros_like(replica.theta)

    def apply_mixing(self, replica: ReplicaView, change: Tensor) -> None:
        """Change the node's parameters by mixing."""
        replica.theta.add_(change)
        self._moved.add_(change)

    def telemetry(self, replica: ReplicaView) -> dict[str, float]:
        """Sum up what was moved; a new sum is begun, so that rounding does not add up over epochs."""
        error = relative_error(self.comm, self._moved, replica.theta)
        self._moved.zero_()
        return {"invariant": error}

    def state_tensors(self) -> dict[str, Tensor]:
        return {"moved": self._moved}
