"""The way from a worker or a relay to its server: requests, each answered."""

from collections import Counter
from dataclasses import dataclass
from typing import Self

from torch import Tensor

from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.comm.compress.feedback import Feedback

PUSH, FETCH, DONE = 1, 2, 3
STOP, NUMBER = 4, 8
MOST = 32_767 // NUMBER - 1  # MPI promises tags up to 32767


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
        """Return the tag that `read` understands."""
        return self.kind + STOP * self.stop + NUMBER * min(self.number, MOST)

    @classmethod
    def read(cls, tag: int) -> Self:
        """Return what `tag` says."""
        return cls(tag % STOP, tag % NUMBER >= STOP, tag // NUMBER)


class Link:
    """Ask one's server, one request at a time.

    wish: whether to ask for an early stop with the next request; stop: whether the last answer ordered one.
    staleness: of this rank's pushes, updates that others made between the answer before and the push. feedback: how
    pushes are written, and what they left out so far; answers come as they are.
    """

    def __init__(self, comm: Communicator, server: int, feedback: Feedback) -> None:
        self.wish = self.stop = False
        self.staleness: Counter[int] = Counter()
        self._comm, self._server, self.feedback = comm, server, feedback
        self._asked: tuple[int, Tensor] | None = None

    def ask(
        self, kind: int, vector: Tensor, room: Tensor, purpose: str = "gradient", number: int = 1
    ) -> None:
        """Send a request; `settle` will overwrite `room` by the answer."""
        self.settle()
        payload = self.feedback.send(vector) if kind == PUSH else vector
        self._send(Header(kind, self.wish, number), payload, purpose)
        self._asked = kind, room

    def settle(self) -> int:
        """Wait for the answer, if one is due; return how many updates it has more than the one before."""
        if self._asked is None:
            return 0
        (kind, room), self._asked = self._asked, None
        tag = self._comm.probe(self._server).tag
        self._comm.receive(room, self._server, tag)
        answer = Header.read(tag)
        self.stop = answer.stop
        if kind == PUSH:
            self.staleness[answer.number - 1] += 1
        return answer.number

    def leave(self, nothing: Tensor) -> None:
        """Tell the server that no more requests come."""
        self.settle()
        self._send(Header(DONE, self.wish), nothing, "control")

    def _send(self, header: Header, vector: Tensor, purpose: str) -> None:
        self._comm.send(vector, self._server, header.tag, purpose)
