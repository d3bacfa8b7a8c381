"""Stochastic gradient push: weighted averages over directed graphs."""

from typing import Any

from nnlo_lib.algorithms.base import Algorithm, ReplicaView, SampleShare
from nnlo_lib.algorithms.context import AlgorithmContext
from nnlo_lib.algorithms.gossip.push_sum import PushSum
from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.comm.compression.base import Compressor
from nnlo_lib.topology.topology import Topology


class SGP(PushSum):
    """Push biased parameters and weights along a directed graph; compute gradients at the unbiased quotient.

        x_i <- optimizer(x_i, g_i(z_i))
        x_i <- sum_j p_ij x_j,    w_i <- sum_j p_ij w_j,    z_i = x_i / w_i      columns of p sum to one

    Assran, Loizou, Ballas and Rabbat, Stochastic Gradient Push for Distributed Deep Learning, 2019,
    arXiv:1811.10792, algorithm 1; p may change from step to step. Replicas hold z; only between gradient and
    mixing they hold x = w z. Invariants: sum_i w_i = n, and mixing keeps sum_i x_i. Bytes per rank and step:
    4 (P + 1), x and w, to each receiver, which multiplies them by p_ij. `compression` rounds the x that is
    sent (2 P + 4); x_i keeps the rounding error.
    """

    def __init__(self, comm: Communicator, topology: Topology, compressor: Compressor | None = None) -> None:
        super().__init__(comm, compressor)
        self.topology = topology

    @classmethod
    def from_config(cls, config: Any, context: AlgorithmContext) -> Algorithm:
        """Return the algorithm on the run's graph; it has no settings."""
        return cls(context.comm, context.topology, context.compressor)

    def on_gradient(self, replica: ReplicaView, share: SampleShare) -> None:
        replica.theta.mul_(self.weight)

    def on_parameters(self, replica: ReplicaView) -> None:
        mixing, rank = self.topology.at(self.local_steps), self.comm.rank
        mine = self.packed(replica.theta, self.weight)
        received = {neighbor: self.payload_buffer(replica.theta) for neighbor in mixing.neighbors(rank)}
        self.comm.exchange(dict.fromkeys(mixing.receivers(rank), mine), received)
        p = {rank: mixing.self_weight(rank)} | mixing.neighbors(rank)
        packets = {rank: mine} | received
        sent, weight = self.unpacked(mine, replica.theta)
        # What rounding took from x and w in the packet stays on this rank, so that the sums are kept.
        self.weight -= weight
        replica.theta.sub_(sent)
        # Ascending ranks give the same order of additions, and thus the same bits, on every transport.
        for j in sorted(packets):
            x, w = self.unpacked(packets[j], sent)
            replica.theta.add_(x, alpha=p[j])
            self.weight += p[j] * w
        replica.theta.div_(self.weight)
        self.local_steps += 1
