"""GoSGD: sum-weight gossip with random partners."""

from nnlo_lib.algorithms.base import Algorithm, ReplicaView, SampleShare
from nnlo_lib.algorithms.context import AlgorithmContext
from nnlo_lib.algorithms.gossip.inbox import Inbox
from nnlo_lib.algorithms.gossip.push_sum import PushSum
from nnlo_lib.comm.communicator import Communicator, Message
from nnlo_lib.comm.compression.base import Compressor
from nnlo_lib.config.gossip import GoSGDConfig
from nnlo_lib.core.rng import derive_seed

TAG_GOSSIP_PUSH = 3  # message tag


class GoSGD(PushSum):
    """With probability p push the parameters and half of their weight to a random rank, which merges them.

        step:   theta_r <- optimizer(theta_r, g_r)
        merge:  theta_r <- (a_r theta_r + a_s theta_s) / (a_r + a_s),    a_r <- a_r + a_s,    for all that arrived
        push:   with probability p:    a_r <- a_r / 2,    send (theta_r, a_r) to a random other rank

    Blot, Picard, Cord and Thome, Gossip training for deep learning, 2016, arXiv:1611.09726, algorithms 1 and
    2, with weights that start at 1, so that halving is exact. With `synchronous`, every rank knows all draws:
    after its own push it waits for exactly the pushes of the same step and merges them in rank order, which
    is bit-reproducible. Invariants: sum_r a_r = n, and merging keeps sum_r a_r theta_r. Bytes per push:
    4 (P + 1), 4 (P + 1) p per rank and step on average. `compression` rounds the pushed parameters (2 P + 4);
    theta_r keeps the rounding error.
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
        self._push(replica, self.target(self.comm.rank))
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

    def _push(self, replica: ReplicaView, target: int | None) -> None:
        if target is not None:
            packet = self.packed(replica.theta, self.weight / 2)
            self.comm.send(packet, target, TAG_GOSSIP_PUSH)
            sent, weight = self.unpacked(packet, replica.theta)
            # The packet holds rounded numbers w and `sent`. With the former weight W and the new parameters
            # theta', (W - w) theta' + w sent = W theta: the rounding errors stay on this rank.
            self.weight -= weight
            replica.theta.add_(replica.theta - sent, alpha=weight / self.weight)

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
