"""Weighted gossip, `gosgd` and `sgp`, and the inbox of messages between ranks that are at different steps."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from nnlo_lib.algorithms.base import Algorithm, ReplicaView, SampleShare, mean_buffers
from nnlo_lib.algorithms.neighbor_exchange import AlgorithmContext
from nnlo_lib.comm.communicator import Communicator, Message
from nnlo_lib.comm.compression.base import Compressor, Identity, concat_bytes
from nnlo_lib.config.decentralized import GoSGDConfig
from nnlo_lib.core.rng import derive_seed
from nnlo_lib.topology.topology import Topology

TAG_STOP, TAG_QUIESCENT = 1, 2  # message tags; the tags of algorithms start at 3
TAG_GOSSIP_PUSH = 3


class PushSum(Algorithm):
    """Base class: holds a replica's weight w_i; the mean model of the ranks is sum_i w_i theta_i / sum_i w_i.

    Kempe, Dobra and Gehrke, Gossip-Based Computation of Aggregate Information, 2003. Invariant:
    sum_i w_i = n. In a packet the weight has the dtype of theta, and a `compressor` without memory encodes
    the parameters; the sender keeps the rounding errors of both.
    """

    replicas_differ = True

    def __init__(self, comm: Communicator, compressor: Compressor | None = None) -> None:
        super().__init__(comm)
        self._compressor = compressor or Identity()
        self.weight = 1.0
        self.local_steps = 0

    def packed(self, vector: Tensor, weight: float) -> Tensor:
        """Return the packet, uint8, of a weight and a vector."""
        payload = self._compressor.encode(vector, self.local_steps, self.comm.rank)
        return concat_bytes(vector.new_tensor([weight]), payload)

    def payload_buffer(self, like: Tensor) -> Tensor:
        """Return memory for a packet with a vector of the length of `like`."""
        size = like.element_size() + self._compressor.size(like)
        return torch.empty(size, dtype=torch.uint8, device=like.device)

    def unpacked(self, packet: Tensor, like: Tensor) -> tuple[Tensor, float]:
        """Return the vector, which has the length of `like`, and the weight of a packet."""
        vector, head = torch.empty_like(like), like.element_size()
        self._compressor.decode(packet[head:], vector)
        return vector, float(packet[:head].view(like.dtype))

    def before_evaluation(self, replica: ReplicaView) -> None:
        pass

    def on_finish(self, replica: ReplicaView) -> None:
        replica.theta.mul_(self.weight)
        self.comm.allreduce(replica.theta, "parameters")
        # The sum of the weights is n only up to rounding errors. fsum gives the same exact sum on all ranks.
        replica.theta.div_(math.fsum(self.comm.gather(self.weight)))
        mean_buffers(self.comm, replica, self.comm.size, is_worker=True)

    def telemetry(self, replica: ReplicaView) -> dict[str, float]:
        weights = self.comm.gather(self.weight)
        return {
            "invariant": abs(math.fsum(weights) - self.comm.size) / self.comm.size,
            "mass_min": min(weights),
            "mass_max": max(weights),
        }

    def state(self) -> dict[str, Tensor]:
        return {
            "push_sum.weight": torch.tensor([self.weight], dtype=torch.float64),
            "push_sum.local_steps": torch.tensor([self.local_steps]),
        }

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        self.weight = float(tensors["push_sum.weight"])
        self.local_steps = int(tensors["push_sum.local_steps"])


class GoSGD(PushSum):
    """With probability p push the parameters and half of their weight to a random rank, which merges them.

        step:   theta_r <- optimizer(theta_r, g_r)
        merge:  theta_r <- (a_r theta_r + a_s theta_s) / (a_r + a_s),    a_r <- a_r + a_s,    for all that arrived
        push:   with probability p:    a_r <- a_r / 2,    send (theta_r, a_r) to a random other rank

    Blot, Picard, Cord and Thome, Gossip training for deep learning, 2016, arXiv:1611.09726, algorithms 1 and 2, with
    weights that start at 1, so that halving is exact. With `synchronous`, every rank knows all draws: after its own
    push it waits for exactly the pushes of the same step and merges them in rank order, which is bit-reproducible.

    Invariants: sum_r a_r = n, and merging keeps sum_r a_r theta_r. Bytes per push: 4 (P + 1), 4 (P + 1) p per rank and
    step on average. `compression` rounds the pushed parameters (2 P + 4); theta_r keeps the rounding error.
    """

    def __init__(
        self,
        comm: Communicator,
        seed: int,
        probability: float = 0.01,
        synchronous: bool = False,
        compressor: Compressor | None = None,
    ) -> None:
        super().__init__(comm, compressor)
        self.seed, self.probability, self.synchronous = seed, probability, synchronous
        self._inbox = Inbox(comm, self._merge)

    @classmethod
    def from_config(cls, config: GoSGDConfig, context: AlgorithmContext) -> Algorithm:
        """Return the algorithm with these settings."""
        return cls(context.comm, context.seed, **config.arguments, compressor=context.compressor)

    def on_gradient(self, replica: ReplicaView, share: SampleShare) -> None:
        pass

    def on_parameters(self, replica: ReplicaView) -> None:
        if not self.synchronous:
            self._inbox.drain(replica)
        if (target := self.target(self.comm.rank)) is not None:
            packet = self.packed(replica.theta, self.weight / 2)
            self.comm.send(packet, target, TAG_GOSSIP_PUSH)
            sent, weight = self.unpacked(packet, replica.theta)
            # The packet holds rounded numbers w and `sent`. With the former weight W and the new parameters
            # theta', (W - w) theta' + w sent = W theta: the rounding errors stay on this rank.
            self.weight -= weight
            replica.theta.add_(replica.theta - sent, alpha=weight / self.weight)
        if self.synchronous:
            # Ascending ranks give the same order of additions, and thus the same bits, in every run.
            for source in range(self.comm.size):
                if self.target(source) == self.comm.rank:
                    self._merge(replica, Message(source, TAG_GOSSIP_PUSH))
        self.local_steps += 1

    def target(self, rank: int) -> int | None:
        """Return the rank that `rank` pushes to after this step, if any; all ranks draw the same."""
        draw = derive_seed(self.seed, "gosgd push", rank, self.local_steps)
        # derive_seed returns 63 bits.
        if self.comm.size == 1 or draw >= self.probability * 2**63:
            return None
        other = derive_seed(self.seed, "gosgd target", rank, self.local_steps) % (self.comm.size - 1)
        return other + (other >= rank)

    def _merge(self, replica: ReplicaView, message: Message) -> None:
        packet = self.payload_buffer(replica.theta)
        self.comm.receive(packet, message.source, TAG_GOSSIP_PUSH)
        theta, weight = self.unpacked(packet, replica.theta)
        total = self.weight + weight
        replica.theta.mul_(self.weight / total).add_(theta, alpha=weight / total)
        self.weight = total

    def should_stop(self, requested: bool) -> bool:
        return super().should_stop(requested) if self.synchronous else self._inbox.should_stop(requested)

    def quiesce(self, replica: ReplicaView) -> None:
        super().quiesce(replica) if self.synchronous else self._inbox.quiesce(replica)


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


class Inbox:
    """Passes messages on arrival to `take`, which receives them; only `quiesce` blocks."""

    def __init__(self, comm: Communicator, take: Callable[[ReplicaView, Message], None]) -> None:
        self.comm, self._take = comm, take
        self._stop = False
        self._done: set[int] = set()

    def drain(self, replica: ReplicaView) -> None:
        """Process all messages that have arrived."""
        while (message := self.comm.iprobe()) is not None:
            self._handle(replica, message)

    def should_stop(self, requested: bool) -> bool:
        """Return True if this rank requests a stop (`requested`) or has received a request of another rank.

        The request is sent to all ranks, unless this rank already knows of one.
        """
        if requested and not self._stop:
            self._send_control_to_all(TAG_STOP)
            self._stop = True
        return self._stop

    def quiesce(self, replica: ReplicaView, awaits: Callable[[], bool] = lambda: False) -> None:
        """Process messages until all ranks have called this and this rank `awaits` no more replies.

        Afterwards no message is in flight.
        """
        # Messages of a rank arrive in order: only replies follow its TAG_QUIESCENT, and `awaits` covers them.
        self._send_control_to_all(TAG_QUIESCENT)
        while len(self._done) < self.comm.size - 1 or awaits():
            self._handle(replica, self.comm.probe())
        self._done.clear()
        self._stop = False
        # No rank may send messages of the next phase while another rank still collects TAG_QUIESCENT.
        self.comm.barrier()

    def _handle(self, replica: ReplicaView, message: Message) -> None:
        if message.tag not in (TAG_STOP, TAG_QUIESCENT):
            self._take(replica, message)
            return
        self.comm.receive(torch.empty(0), message.source, message.tag)
        if message.tag == TAG_STOP:
            self._stop = True
        else:
            self._done.add(message.source)

    def _send_control_to_all(self, tag: int) -> None:
        for rank in range(self.comm.size):
            if rank != self.comm.rank:
                self.comm.send(torch.empty(0), rank, tag, "control")
