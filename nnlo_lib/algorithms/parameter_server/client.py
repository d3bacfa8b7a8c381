"""The way from a worker or a relay to its server: requests, each answered."""

from collections import Counter
from dataclasses import dataclass
from typing import Self

from torch import Tensor

from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.comm.compression.error_feedback import ErrorFeedback

PUSH, FETCH, DISCONNECT = 1, 2, 3
STOP_FLAG, COUNT_UNIT = 4, 8
MAX_COUNT_IN_TAG = 32_767 // COUNT_UNIT - 1  # MPI promises tags up to 32767


@dataclass(frozen=True)
class Header:
    """What a message's tag says.

    kind: what is asked, or answered. stop: upwards somebody's wish, downwards the order. number: upwards how many
    pushes are added up in the vector, downwards how many updates the server's parameters had since the last answer.
    """

    kind: int
    stop: bool = False
    number: int = 0

    @property
    def tag(self) -> int:
        """Return the tag that `from_tag` decodes."""
        return self.kind + STOP_FLAG * self.stop + COUNT_UNIT * min(self.number, MAX_COUNT_IN_TAG)

    @classmethod
    def from_tag(cls, tag: int) -> Self:
        """Return what `tag` says."""
        return cls(tag % STOP_FLAG, tag % COUNT_UNIT >= STOP_FLAG, tag // COUNT_UNIT)


class Client:
    """Ask one's server, one request at a time.

    stop_requested: whether to ask for an early stop with the next request; stop_ordered: whether the last answer ordered one.
    staleness: of this rank's pushes, updates that others made between the answer before and the push. feedback: how
    pushes are written, and what they left out so far; answers come as they are.
    """

    def __init__(self, comm: Communicator, server: int, feedback: ErrorFeedback) -> None:
        self.stop_requested = self.stop_ordered = False
        self.staleness: Counter[int] = Counter()
        self._comm, self._server, self.feedback = comm, server, feedback
        self._pending: tuple[int, Tensor] | None = None

    def request(
        self, kind: int, vector: Tensor, room: Tensor, purpose: str = "gradient", number: int = 1
    ) -> None:
        """Send a request; `wait` overwrites `room` by the answer."""
        self.wait()
        payload = self.feedback.encode(vector) if kind == PUSH else vector
        self._send(Header(kind, self.stop_requested, number), payload, purpose)
        self._pending = kind, room

    def wait(self) -> int:
        """Wait for the answer, if one is due; return how many updates it has more than the one before."""
        if self._pending is None:
            return 0
        (kind, room), self._pending = self._pending, None
        tag = self._comm.probe(self._server).tag
        self._comm.receive(room, self._server, tag)
        answer = Header.from_tag(tag)
        self.stop_ordered = answer.stop
        if kind == PUSH:
            self.staleness[answer.number - 1] += 1
        return answer.number

    def disconnect(self, nothing: Tensor) -> None:
        """Tell the server that no more requests come."""
        self.wait()
        self._send(Header(DISCONNECT, self.stop_requested), nothing, "control")

    def _send(self, header: Header, vector: Tensor, purpose: str) -> None:
        self._comm.send(vector, self._server, header.tag, purpose)
