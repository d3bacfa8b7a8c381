"""Decentralized SGD."""

from nnlo_lib.algorithms.base import Algorithm, ReplicaView
from nnlo_lib.algorithms.context import AlgorithmContext
from nnlo_lib.algorithms.decentralized.base import MixingAlgorithm
from nnlo_lib.algorithms.decentralized.neighbor_exchange import NeighborExchange
from nnlo_lib.config.decentralized import DSGDConfig


class DSGD(MixingAlgorithm):
    """Take a local step, then average with the neighbors.

        theta_i <- sum_j w_ij optimizer(theta_j, g_j)

    Nedic and Ozdaglar, 2009, in the adapt-then-combine order; gradients are computed at mixed parameters, as
    in DiNNO's code. That code mixes `in_place`, node after node: W is then not doubly stochastic, and some
    nodes have more weight. Invariant, unless `in_place`: mixing keeps the mean of the parameters. Bytes per
    node and step: 4 P to each neighbor.
    """

    def __init__(self, around: NeighborExchange, in_place: bool = False) -> None:
        super().__init__(around)
        self.in_place = in_place

    @classmethod
    def from_config(cls, config: DSGDConfig, context: AlgorithmContext) -> Algorithm:
        """Return the algorithm with these settings."""
        return cls(context.neighbors, in_place=config.mixing == "in_place")

    def on_parameters(self, replica: ReplicaView) -> None:
        if self.in_place:
            self.apply_mixing(replica, self.neighbors.exchange_in_turn(replica.theta).mixing_delta())
            self.neighbors.publish(replica.theta)
        else:
            self.apply_mixing(replica, self.neighbors.exchange(replica.theta).mixing_delta())

    def telemetry(self, replica: ReplicaView) -> dict[str, float]:
        return {} if self.in_place else super().telemetry(replica)
