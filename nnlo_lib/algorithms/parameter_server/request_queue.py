"""Who serves whom, and where a server or a relay collects what its clients ask."""

import torch
from torch import Tensor

from nnlo_lib.algorithms.parameter_server.client import DISCONNECT, PUSH, Header
from nnlo_lib.comm.communicator import Communicator, Message
from nnlo_lib.comm.compression.base import Compressor

ROOT_RANK = 0


def server_of(rank: int, size: int, masters: int) -> int:
    """Return whom `rank` asks: relays 1 .. masters - 1 the root, workers their relay, or the root if there is none.

    >>> [server_of(rank, size=8, masters=3) for rank in range(1, 8)]
    [0, 0, 1, 1, 1, 2, 2]
    """
    if rank < masters or masters == 1:
        return ROOT_RANK
    return 1 + (rank - masters) * (masters - 1) // (size - masters)


class RequestQueue:
    """Collect the requests of clients, and add up what they push.

    combines: whether several requests may wait here together; otherwise each vector goes straight into `total`.
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
        """Wait for a request, and take all that have arrived if they may be combined."""
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
        """Add up in `total`, in rank order, what was pushed; return who waits for answers, and how many pushes it is."""
        clients = sorted(client for client, header in self.waiting.items() if header.kind == kind)
        number = sum(self.waiting.pop(client).number for client in clients)
        if kind == PUSH and self._combines and clients:
            self._total.zero_()
            for client in clients:
                self._total.add_(self._pushed.pop(client))
        return clients, number
