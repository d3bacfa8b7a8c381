"""Parameter server: the base class of its algorithms, its relays, and the queue of its clients' requests."""

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from nnlo_lib.algorithms.base import Algorithm, ReplicaView, mean_buffers, relative_error
from nnlo_lib.algorithms.neighbor_exchange import AlgorithmContext
from nnlo_lib.algorithms.server_client import DISCONNECT, FETCH, PUSH, Client, Header
from nnlo_lib.comm.communicator import Communicator, Message
from nnlo_lib.comm.compression.base import Compressor, ErrorFeedback, Identity

ROOT_RANK = 0


class ParameterServer(Algorithm):
    """Base class: rank 0, the root, holds parameters; workers push vectors to it and fetch the parameters.

    With several masters, ranks 1 .. masters - 1 are relays: each sums the pushes of its workers, sends the
    sum to the root and forwards the answer. Workers and relays may compress their pushes; each adds its
    compression error to its later pushes. With `synchronous`, servers wait for all clients that still have
    data. Invariant: every push is applied exactly once.
    """

    push_purpose = "gradient"
    summed_state: tuple[str, ...] = ("server.staleness",)

    def __init__(
        self,
        comm: Communicator,
        synchronous: bool = False,
        sync_every: int = 1,
        masters: int = 1,
        feedback: ErrorFeedback | None = None,
    ) -> None:
        super().__init__(comm)
        self.synchronous, self.sync_every = synchronous, sync_every
        # Updates of the root's parameters, on a relay up to the last answer; and pushes in them, on the root.
        self.updates = self.pushes = 0
        self.workers, self.is_worker = comm.size - masters, comm.rank >= masters
        servers = {rank: server_of(rank, comm.size, masters) for rank in range(1, comm.size)}
        feedback = feedback or ErrorFeedback(Identity(), comm.rank)
        self.client = Client(comm, servers.get(comm.rank, ROOT_RANK), feedback)
        clients = [rank for rank, server in servers.items() if server == comm.rank]
        self._answered = dict.fromkeys(clients, 0)  # `updates` at the last answer, by client

    @classmethod
    def from_config(cls, config: Any, context: AlgorithmContext) -> Algorithm:
        """Return the algorithm; its settings are keyword arguments of the class."""
        return cls(context.comm, **config.arguments, feedback=context.error_feedback)

    @abstractmethod
    def update(self, replica: ReplicaView, number: int) -> Tensor:
        """Update the root's parameters by `replica.grad`, the sum of `number` pushes; return the answer."""

    def answer_to_push(self, replica: ReplicaView) -> Tensor:
        """Return the vector that a relay overwrites by the answer to a push."""
        return replica.theta

    def quiesce(self, replica: ReplicaView) -> None:
        if self.comm.rank != ROOT_RANK:
            self.client.disconnect(replica.theta[:0])
        self.client.stop_requested = self.client.stop_ordered = False

    def before_evaluation(self, replica: ReplicaView) -> None:
        self.comm.broadcast(replica.theta, ROOT_RANK)
        mean_buffers(self.comm, replica, self.workers, self.is_worker)
        # The broadcast gave all clients the parameters of the latest update; staleness counts from it.
        self._answered = dict.fromkeys(self._answered, self.updates)

    def should_stop(self, requested: bool) -> bool:
        """Return True if the server's last answer ordered a stop; send `requested` with the next request."""
        self.client.stop_requested = requested
        return self.client.stop_ordered

    def serve(self, replica: ReplicaView, requests_stop: Callable[[], bool]) -> None:
        # An asynchronous root applies each push separately; other servers combine waiting requests into one.
        alone = self.comm.rank == ROOT_RANK and not self.synchronous
        compressor = self.client.feedback.compressor
        queue = RequestQueue(self.comm, list(self._answered), replica.grad, not alone, compressor)
        while queue.active:
            queue.receive()
            self.client.stop_requested |= queue.stop_requested or requests_stop()
            # Clients without more batches disconnect and leave `active`: nothing waits for them.
            if self.synchronous and set(queue.waiting) != queue.active:
                continue
            for kind in sorted({header.kind for header in queue.waiting.values()}):
                self._answer(replica, kind, *queue.pop_sum(kind))

    def _answer(self, replica: ReplicaView, kind: int, clients: list[int], number: int) -> None:
        answer = (self._decide if self.comm.rank == ROOT_RANK else self._relay)(replica, kind, number)
        for client in clients:
            header = Header(kind, self.client.stop_ordered, self.updates - self._answered[client])
            self.comm.send(answer, client, header.tag, "parameters")
            self._answered[client] = self.updates

    def _decide(self, replica: ReplicaView, kind: int, number: int) -> Tensor:
        self.client.stop_ordered = self.client.stop_requested
        if kind == FETCH:
            return replica.theta
        self.updates, self.pushes = self.updates + 1, self.pushes + number
        started = self.comm.now()
        answer = self.update(replica, number)
        self.comm.seconds.report_span("update", "compute", started, self.comm.now())
        return answer

    def _relay(self, replica: ReplicaView, kind: int, number: int) -> Tensor:
        """Send the combined request to this relay's server, for PUSH the sum of `number` pushes; return the answer."""
        vector, room = replica.theta[:0], replica.theta
        if kind == PUSH:
            vector, room = replica.grad, self.answer_to_push(replica)
        self.client.request(kind, vector, room, self.push_purpose, number)
        self.updates += self.client.wait()
        return room

    def telemetry(self, replica: ReplicaView) -> dict[str, float]:
        # Each worker counted its pushes by their answers; relays count only combined requests.
        mine = self.client.staleness.total() * self.is_worker
        error, size = torch.tensor([[self.pushes - mine], [self.pushes]], dtype=torch.float64)
        return {"invariant": relative_error(self.comm, error, size)}

    def histograms(self) -> dict[str, dict[int, int]]:
        return {"staleness": dict(sorted(self.client.staleness.items()))} if self.is_worker else {}

    def state(self) -> dict[str, Tensor]:
        answered = [*self._answered.values()]
        staleness = sorted(self.client.staleness.items())
        own = {
            "server.updates": torch.tensor([self.updates, self.pushes]),
            "server.answered": torch.tensor(answered, dtype=torch.int64),
            "server.staleness": torch.tensor(staleness, dtype=torch.int64).view(-1, 2),
        }
        return own | self.client.feedback.state()

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        self.client.feedback.load_state(tensors)
        self.updates, self.pushes = tensors["server.updates"].tolist()
        answered = tensors["server.answered"].tolist()
        # After a change of the number of ranks, the clients start with all updates.
        if len(answered) != len(self._answered):
            answered = [self.updates] * len(self._answered)
        self._answered = dict(zip(self._answered, answered, strict=True))
        self.client.staleness = Counter()
        for staleness, pushes in tensors["server.staleness"].tolist():
            self.client.staleness[staleness] += pushes


def server_of(rank: int, size: int, masters: int) -> int:
    """Return the server of a rank: the root for relays, a relay for workers, or the root if there are no relays.

    Ranks 1 .. masters - 1 are relays, ranks masters .. size - 1 are workers.

    >>> [server_of(rank, size=8, masters=3) for rank in range(1, 8)]
    [0, 0, 1, 1, 1, 2, 2]
    """
    if rank < masters or masters == 1:
        return ROOT_RANK
    return 1 + (rank - masters) * (masters - 1) // (size - masters)


class RequestQueue:
    """Collects the requests of clients and overwrites `total` by the sum of their pushed vectors.

    With `combines`, several requests may wait together; otherwise vectors are received in `total`.
    """

    def __init__(
        self, comm: Communicator, clients: list[int], total: Tensor, combines: bool, compressor: Compressor
    ) -> None:
        self.active, self.stop_requested = set(clients), False  # clients that have not disconnected
        self.waiting: dict[int, Header] = {}  # headers of the unanswered requests, by client
        self._comm, self._total, self._combines = comm, total, combines
        self._compressor = compressor
        self._pushed: dict[int, Tensor] = {}

    def receive(self) -> None:
        """Wait for a request; if requests may be combined, receive all that have arrived."""
        self._take(self._comm.probe())
        while self._combines and (message := self._comm.iprobe()):
            self._take(message)

    def _take(self, message: Message) -> None:
        header = Header.from_tag(message.tag)
        self.stop_requested |= header.stop
        if header.kind == PUSH:
            vector = torch.empty_like(self._total) if self._combines else self._total
            payload = self._compressor.payload_buffer(vector)
            self._comm.receive(payload, message.source, message.tag)
            self._compressor.decode(payload, vector)
            self._pushed[message.source] = vector
        else:
            self._comm.receive(self._total[:0], message.source, message.tag)
        if header.kind == DISCONNECT:
            self.active.remove(message.source)
        else:
            self.waiting[message.source] = header

    def pop_sum(self, kind: int) -> tuple[list[int], int]:
        """Remove the waiting requests of a kind, and sum pushed vectors; return their clients and the number of pushes."""
        clients = sorted(client for client, header in self.waiting.items() if header.kind == kind)
        number = sum(self.waiting.pop(client).number for client in clients)
        if kind == PUSH and self._combines and clients:
            self._total.zero_()
            # In rank order, so that the sum does not depend on the order of arrival.
            for client in clients:
                self._total.add_(self._pushed.pop(client))
        return clients, number
