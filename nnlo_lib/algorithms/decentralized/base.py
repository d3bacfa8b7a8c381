"""Base classes of the algorithms in which each node exchanges vectors only with its neighbors."""

from typing import Any

import torch
from torch import Tensor

from nnlo_lib.algorithms.base import Algorithm, ReplicaView, SampleShare, relative_error
from nnlo_lib.algorithms.context import AlgorithmContext
from nnlo_lib.algorithms.decentralized.neighbor_exchange import NeighborExchange


class DecentralizedAlgorithm(Algorithm):
    """Base class: every node keeps its own model, and the mean of all models is published at the end.

    `around` exchanges vectors with the neighbors.
    """

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
        # Names of state tensors are part of the checkpoint format: older spellings stay.
        return {
            f"neighbour.{name}": tensor for name, tensor in self.state_tensors().items()
        } | self.neighbors.state()

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        self.neighbors.load_state(tensors)
        for name, tensor in self.state_tensors().items():
            # In place: subclasses keep counters as tensors, too, so that this restores them.
            tensor.copy_(tensors[f"neighbour.{name}"])

    def state_tensors(self) -> dict[str, Tensor]:
        """Return the node's tensors to save besides its parameters, for example duals or trackers."""
        return {}


class MixingAlgorithm(DecentralizedAlgorithm):
    """Base class: sums up the changes of each node's parameters by mixing, for the invariant.

    The sum over all nodes is zero if mixing keeps the mean.
    """

    def start(self, replica: ReplicaView) -> None:
        super().start(replica)
        self._moved = torch.zeros_like(replica.theta)

    def apply_mixing(self, replica: ReplicaView, change: Tensor) -> None:
        """Add `change`, the result of mixing, to the node's parameters."""
        replica.theta.add_(change)
        self._moved.add_(change)

    def telemetry(self, replica: ReplicaView) -> dict[str, float]:
        """Return the relative error of the mean; start a new sum, so that rounding does not add up."""
        error = relative_error(self.comm, self._moved, replica.theta)
        self._moved.zero_()
        return {"invariant": error}

    def state_tensors(self) -> dict[str, Tensor]:
        return {"moved": self._moved}
