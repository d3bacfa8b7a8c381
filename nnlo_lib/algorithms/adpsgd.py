"""Asynchronous gossip in pairs, `adpsgd`: two nodes average their parameters while both continue training."""

from collections import Counter
from typing import Any

import networkx as nx
import torch
from torch import Tensor

from nnlo_lib.algorithms.base import Algorithm, ReplicaView, SampleShare, relative_error
from nnlo_lib.algorithms.neighbor_exchange import AlgorithmContext
from nnlo_lib.algorithms.push_sum import Inbox
from nnlo_lib.comm.communicator import Communicator, Message
from nnlo_lib.comm.compression.base import Compressor, Identity
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.rng import derive_seed
from nnlo_lib.topology.topology import Topology

TAG_AVERAGE_REQUEST, TAG_AVERAGE_REPLY = 3, 4  # message tags


class ADPSGD(Algorithm):
    """Average every active node with a random passive neighbor while both continue training.

        both:       theta <- optimizer(theta, g)     averaging may change theta between gradient and step
        active i:   after a step, sends theta_i to a random neighbor j, unless it still awaits an answer
        passive j:  sends theta_j back,    theta_j <- theta_j + (theta_i - theta_j) / 2
        active i:   theta_i <- theta_i + (theta_j - theta_i as sent) / 2

    Lian, Zhang, Zhang and Liu, Asynchronous Decentralized Parallel SGD, 2018, arXiv:1710.06952, algorithm 1,
    on a bipartite graph. The larger side is active and the other passive, so that no node ever waits.
    Invariant: averaging keeps the sum of each pair. Bytes per averaging: 4 P each way. `compression` rounds
    the vectors that are sent (2 P); both nodes move by half the difference of the rounded vectors, so that
    their sum is kept. With worker groups, a node is a group, and its leader exchanges the parameters.
    """

    replicas_differ = True

    def __init__(
        self, comm: Communicator, topology: Topology, seed: int, compressor: Compressor | None = None
    ) -> None:
        super().__init__(comm)
        self._compressor = compressor or Identity()
        self.is_active = comm.rank in active_nodes(topology)
        self.seed, self._neighbors = seed, list(topology.at(0).neighbors(comm.rank))
        self._inbox = Inbox(comm, self._take)
        # Of an unanswered request: theta as the passive node decodes it, and the local steps at that time.
        self._pending: tuple[Tensor, int] | None = None
        self._moved = torch.empty(0)  # change by averaging since the last telemetry
        self._staleness: Counter[int] = Counter()
        self.local_steps = 0

    @classmethod
    def from_config(cls, config: Any, context: AlgorithmContext) -> Algorithm:
        """Return the algorithm on the run's graph; it has no settings."""
        return cls(context.comm, context.topology, context.seed, context.compressor)

    def start(self, replica: ReplicaView) -> None:
        super().start(replica)
        self._moved = torch.zeros_like(replica.theta)

    def on_gradient(self, replica: ReplicaView, share: SampleShare) -> None:
        self._inbox.drain(replica)

    def on_parameters(self, replica: ReplicaView) -> None:
        self.local_steps += 1
        self._inbox.drain(replica)
        if self.is_active and self._neighbors and self._pending is None:
            draw = derive_seed(self.seed, "adpsgd", self.comm.rank, self.local_steps)
            neighbor = self._neighbors[draw % len(self._neighbors)]
            sent = self._send_parameters(replica, neighbor, TAG_AVERAGE_REQUEST)
            self._pending = sent, self.local_steps

    def _send_parameters(self, replica: ReplicaView, to: int, tag: int) -> Tensor:
        """Send the parameters; return them as the receiver decodes them."""
        payload = self._compressor.encode(replica.theta, self.local_steps, self.comm.rank)
        self.comm.send(payload, to, tag)
        sent = torch.empty_like(replica.theta)
        self._compressor.decode(payload, sent)
        return sent

    def _take(self, replica: ReplicaView, message: Message) -> None:
        theirs = torch.empty_like(replica.theta)
        payload = self._compressor.payload_buffer(theirs)
        self.comm.receive(payload, message.source, message.tag)
        self._compressor.decode(payload, theirs)
        if message.tag == TAG_AVERAGE_REQUEST:
            self._average(replica, self._send_parameters(replica, message.source, TAG_AVERAGE_REPLY), theirs)
        elif self._pending is not None:
            (ours, steps), self._pending = self._pending, None
            self._average(replica, ours, theirs)
            self._staleness[self.local_steps - steps] += 1

    def _average(self, replica: ReplicaView, ours: Tensor, theirs: Tensor) -> None:
        # Both nodes subtract the same two vectors, in opposite order: their moves are exactly opposite.
        move = theirs.sub_(ours).div_(2)
        replica.theta.add_(move)
        self._moved.add_(move)

    def should_stop(self, requested: bool) -> bool:
        return self._inbox.should_stop(requested)

    def quiesce(self, replica: ReplicaView) -> None:
        self._inbox.quiesce(replica, awaits=lambda: self._pending is not None)

    def before_evaluation(self, replica: ReplicaView) -> None:
        pass

    def telemetry(self, replica: ReplicaView) -> dict[str, float]:
        """Return the relative error of the mean; start a new sum, so that rounding does not add up."""
        error = relative_error(self.comm, self._moved, replica.theta)
        self._moved.zero_()
        return {"invariant": error}

    def histograms(self) -> dict[str, dict[int, int]]:
        return {"staleness": dict(sorted(self._staleness.items()))}

    def state(self) -> dict[str, Tensor]:
        return {
            "adpsgd.moved": self._moved,
            "adpsgd.local_steps": torch.tensor([self.local_steps]),
            "adpsgd.staleness": torch.tensor(sorted(self._staleness.items()), dtype=torch.int64).view(-1, 2),
        }

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        self._moved = tensors["adpsgd.moved"].clone()
        self.local_steps = int(tensors["adpsgd.local_steps"])
        self._staleness = Counter(dict(tensors["adpsgd.staleness"].tolist()))


def active_nodes(topology: Topology) -> set[int]:
    """Return the larger side of a bipartite graph, or the side of node 0 if both are equally large.

    Raises UserError if the graph is directed, changes over time or is not bipartite.
    """
    if not topology.static or topology.directed or not topology.bipartite:
        raise UserError(
            "topology.name: adpsgd needs a static, undirected, bipartite graph; use complete_bipartite, hypercube, "
            "star, path, grid, or cycle with an even number of nodes, and no topology.drop"
        )
    graph = nx.from_numpy_array(topology.at(0).matrix)
    # networkx reads the self-weights on the diagonal as loops, which no bipartite graph has.
    graph.remove_edges_from([(node, node) for node in graph])
    color = nx.bipartite.color(graph)
    # Of sides of equal size, max() returns the first: the side of node 0.
    sides = ({node for node in graph if color[node] == side} for side in (color[0], 1 - color[0]))
    return max(sides, key=len)
