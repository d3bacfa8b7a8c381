"""Algorithms on a graph: their base classes, `dsgd`, `choco_sgd` and `d2`, in which each node mixes parameters with neighbors."""

from typing import Any

import torch
from torch import Tensor

from nnlo_lib.algorithms.base import Algorithm, ReplicaView, SampleShare, relative_error
from nnlo_lib.algorithms.neighbor_exchange import AlgorithmContext, NeighborExchange


class DecentralizedAlgorithm(Algorithm):
    """Base class: every node keeps its own model, and the mean of all models is published at the end.

    `around` exchanges vectors with the neighbors.
    """

    keeps_gradient = False
    replicas_differ = True

    def __init__(self, around: NeighborExchange) -> None:
        super().__init__(around.comm)
        self.neighbors = around

    @classmethod
    def from_config(cls, config: Any, context: AlgorithmContext) -> Algorithm:
        """Return the algorithm, with momentum if set; its other settings are keyword arguments of the class."""
        made = cls(context.neighbors, **config.arguments)
        mu = getattr(config, "quasi_global_momentum", 0.0)
        return QuasiGlobalMomentum(made, mu) if mu else made

    def start(self, replica: ReplicaView) -> None:
        super().start(replica)
        self.neighbors.set_initial(replica.theta)

    def on_gradient(self, replica: ReplicaView, share: SampleShare) -> None:
        pass

    def before_evaluation(self, replica: ReplicaView) -> None:
        pass

    def state(self) -> dict[str, Tensor]:
        # Names of state tensors are part of the checkpoint format: older spellings stay.
        own = {f"neighbour.{name}": tensor for name, tensor in self.state_tensors().items()}
        return own | self.neighbors.state()

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        self.neighbors.load_state(tensors)
        for name, tensor in self.state_tensors().items():
            # In place: subclasses keep counters as tensors, too, so that this restores them.
            tensor.copy_(tensors[f"neighbour.{name}"])

    def state_tensors(self) -> dict[str, Tensor]:
        """Return the node's tensors to save besides its parameters, for example duals or trackers."""
        return {}


class QuasiGlobalMomentum(DecentralizedAlgorithm):
    """Add a momentum of the mixed parameters to the local steps of `inner`; its neighbors' data act on it, too.

        psi_i = optimizer(theta_i, g_i) + mu m_i;    theta_i^new: what `inner` makes of psi_i;    m_i <- mu m_i + (1 - mu) (theta_i^new - theta_i)

    Lin et al., Quasi-Global Momentum, 2021, arXiv:2102.04761, algorithm 1 (QG-DSGDm), where -lr m_i is written out: it is
    the same if the learning rate is constant. The invariant of `inner` holds; no bytes are added.
    """

    def __init__(self, inner: DecentralizedAlgorithm, mu: float) -> None:
        super().__init__(inner.neighbors)
        self._inner, self._mu = inner, mu

    def start(self, replica: ReplicaView) -> None:
        self._inner.start(replica)
        # `_before` is no state to save, because `on_gradient` sets it in every step.
        self._momentum, self._before = torch.zeros_like(replica.theta), replica.theta.clone()

    def on_gradient(self, replica: ReplicaView, share: SampleShare) -> None:
        self._before.copy_(replica.theta)
        self._inner.on_gradient(replica, share)

    def on_parameters(self, replica: ReplicaView) -> None:
        replica.theta.add_(self._momentum, alpha=self._mu)
        self._inner.on_parameters(replica)
        self._momentum.lerp_(replica.theta - self._before, 1 - self._mu)

    def telemetry(self, replica: ReplicaView) -> dict[str, float]:
        return self._inner.telemetry(replica)

    def state_tensors(self) -> dict[str, Tensor]:
        return {**self._inner.state_tensors(), "momentum": self._momentum}


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


class DSGD(MixingAlgorithm):
    """Take a local step, then average with the neighbors.

        theta_i <- sum_j w_ij optimizer(theta_j, g_j)

    Nedic and Ozdaglar, 2009, in the adapt-then-combine order; gradients are computed at mixed parameters, as
    in DiNNO's code. That code mixes `in_place`, node after node: W is then not doubly stochastic, and some
    nodes have more weight. Invariant, unless `in_place`: mixing keeps the mean of the parameters. Bytes per
    node and step: 4 P to each neighbor.
    """

    def __init__(self, around: NeighborExchange, mixing: str = "simultaneous") -> None:
        super().__init__(around)
        self.in_place = mixing == "in_place"

    def on_parameters(self, replica: ReplicaView) -> None:
        if self.in_place:
            self.apply_mixing(replica, self.neighbors.exchange_in_turn(replica.theta).mixing_delta())
            self.neighbors.publish(replica.theta)
        else:
            self.apply_mixing(replica, self.neighbors.exchange(replica.theta).mixing_delta())

    def telemetry(self, replica: ReplicaView) -> dict[str, float]:
        return {} if self.in_place else super().telemetry(replica)


class ChocoSGD(MixingAlgorithm):
    """Move toward public copies of the neighbors' parameters, which compressed differences keep up to date.

        x <- optimizer(theta_i, g_i);    q = Q(x - x^_i);    x^_i <- x^_i + q;    theta_i <- x + gamma sum_j w_ij (x^_j - x^_i)

    Koloskova, Stich and Jaggi, 2019, arXiv:1902.00340, algorithm 2; a node's copy x^_i is the same on all its
    neighbors and starts at the common initial parameters. Invariant: mixing keeps the mean of the parameters.
    Bytes per node and step: one compressed vector to each neighbor.
    """

    def __init__(self, around: NeighborExchange, gamma: float) -> None:
        super().__init__(around)
        self.gamma = gamma

    def on_parameters(self, replica: ReplicaView) -> None:
        self.apply_mixing(replica, self.neighbors.exchange(replica.theta).mixing_delta().mul_(self.gamma))


class D2(DecentralizedAlgorithm):
    """Correct the local step's result psi_j by theta_j - psi_j^previous, then average with the neighbors.

        psi_i = optimizer(theta_i, g_i);    theta_i <- sum_j w_ij (psi_j + theta_j - psi_j^previous)  (first: psi_j)

    Tang et al., D2: Decentralized Training over Decentralized Data, 2018, arXiv:1803.07068, algorithm 1: with
    SGD theta <- W (2 theta - theta^previous - lr (g - g^previous)). W must be symmetric with eigenvalues
    above -1/3. Invariant: the mean of the parameters is the mean of the psi_i. Bytes per node and step: 4 P
    to each neighbor.
    """

    def start(self, replica: ReplicaView) -> None:
        super().start(replica)
        # With psi^previous = theta, the first step has no correction. `_theta` is no state to save, because
        # `on_gradient` sets it in every step.
        self._theta, self._psi = replica.theta.clone(), replica.theta.clone()

    def on_gradient(self, replica: ReplicaView, share: SampleShare) -> None:
        self._theta.copy_(replica.theta)

    def on_parameters(self, replica: ReplicaView) -> None:
        corrected = replica.theta + self._theta - self._psi
        self._psi.copy_(replica.theta)
        replica.theta.copy_(corrected.add_(self.neighbors.exchange(corrected).mixing_delta()))

    def telemetry(self, replica: ReplicaView) -> dict[str, float]:
        return {"invariant": relative_error(self.comm, replica.theta - self._psi, replica.theta)}

    def state_tensors(self) -> dict[str, Tensor]:
        return {"psi": self._psi}
