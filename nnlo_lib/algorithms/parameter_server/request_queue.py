"""The assignment of clients to servers, and the queue of a server's or a relay's client requests."""

import torch
from torch import Tensor

from nnlo_lib.algorithms.parameter_server.client import DISCONNECT, PUSH, Header
from nnlo_lib.comm.communicator import Communicator, Message
from nnlo_lib.comm.compression.base import Compressor

ROOT_RANK = 0


def server_of(rank: int, size: int, masters: int) -> int:
    """Return the server of a rank: the root for relays, a relay for workers.

    Without relays, the root serves the workers.

    Args:
        rank: a relay (1 .. masters - 1) or a worker (masters .. size - 1).
        size: number of ranks.
        masters: number of servers: the root and masters - 1 relays.

    >>> [server_of(rank, size=8, masters=3) for rank in range(1, 8)]
    [0, 0, 1, 1, 1, 2, 2]
    """
    if rank < masters or masters == 1:
        return ROOT_RANK
    return 1 + (rank - masters) * (masters - 1) // (size - masters)


class RequestQueue:
    """Collects the requests of clients and sums their pushed vectors.

    Args:
        comm: communicator of the clients and this rank.
        clients: ranks of the clients.
        total: overwritten by the sum of pushed vectors.
        combines: whether several requests may wait together; otherwise vectors are received in `total`.
        compressor: decodes pushed vectors.

    Attributes:
        active: clients that have not disconnected.
        stop_requested: whether any client has requested a stop.
        waiting: headers of the unanswered requests, by client.
    """

    def __init__(
        self, comm: Communicator, clients: list[int], total: Tensor, combines: bool, compressor: Compressor
    ) -> None:
        self.active, self.stop_requested = set(clients), False
        self.waiting: dict[int, Header] = {}
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
            self._pushed[message.source] = self._receive_push(message)
        else:
            self._comm.receive(self._total[:0], message.source, message.tag)
        if header.kind == DISCONNECT:
            self.active.remove(message.source)
        else:
            self.waiting[message.source] = header

    def _receive_push(self, message: Message) -> Tensor:
        vector = torch.empty_like(self._total) if self._combines else self._total
        payload = self._compressor.payload_buffer(vector)
        self._comm.receive(payload, message.source, message.tag)
        self._compressor.decode(payload, vector)
        return vector

    def pop_sum(self, kind: int) -> tuple[list[int], int]:
        """Remove the waiting requests of a kind; sum pushed vectors in `total`, in rank order.

        Returns: the clients that await an answer, and the number of pushes in the sum.
        """
        clients = sorted(client for client, header in self.waiting.items() if header.kind == kind)
        number = sum(self.waiting.pop(client).number for client in clients)
        if kind == PUSH and self._combines and clients:
            self._total.zero_()
            # In rank order, so that the sum does not depend on the order of arrival.
            for client in clients:
                self._total.add_(self._pushed.pop(client))
        return clients, number
