"""CHOCO-SGD: gossip of compressed differences."""

from nnlo_lib.algorithms.base import ReplicaView
from nnlo_lib.algorithms.decentralized.base import MixingAlgorithm
from nnlo_lib.algorithms.decentralized.neighbor_exchange import NeighborExchange


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
