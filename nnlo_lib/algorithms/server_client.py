"""Client of a parameter server: the requests of a worker or a relay, and their answers."""

from collections import Counter
from dataclasses import dataclass
from typing import Self

from torch import Tensor

from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.comm.compression.base import ErrorFeedback

PUSH, FETCH, DISCONNECT = 1, 2, 3
STOP_FLAG, COUNT_UNIT = 4, 8
MAX_COUNT_IN_TAG = 32_767 // COUNT_UNIT - 1  # MPI guarantees tags up to 32767


@dataclass(frozen=True)
class Header:
    """The content of a message's tag."""

    kind: int  # PUSH, FETCH or DISCONNECT; an answer has the kind of its request
    stop: bool = False  # in a request: a stop is requested. In an answer: a stop is ordered.
    # in a request: number of pushes summed in the vector. In an answer: number of updates of the server's parameters
    # since its last answer to this client. The tag holds at most MAX_COUNT_IN_TAG.
    number: int = 0

    @property
    def tag(self) -> int:
        """Return the tag that `from_tag` decodes."""
        return self.kind + STOP_FLAG * self.stop + COUNT_UNIT * min(self.number, MAX_COUNT_IN_TAG)

    @classmethod
    def from_tag(cls, tag: int) -> Self:
        """Return the header that `tag` encodes."""
        return cls(tag % STOP_FLAG, tag % COUNT_UNIT >= STOP_FLAG, tag // COUNT_UNIT)


class Client:
    """Sends requests to this rank's server; at most one request is unanswered."""

    def __init__(self, comm: Communicator, server: int, feedback: ErrorFeedback) -> None:
        # By the next request, and by the last answer.
        self.stop_requested = self.stop_ordered = False
        # Number of this rank's pushes, by the number of updates from other ranks since the answer before the push.
        self.staleness: Counter[int] = Counter()
        # Answers are not compressed: `feedback` encodes pushes only.
        self._comm, self._server, self.feedback = comm, server, feedback
        self._pending: tuple[int, Tensor] | None = None

    def request(
        self, kind: int, vector: Tensor, room: Tensor, purpose: str = "gradient", number: int = 1
    ) -> None:
        """Send a request, PUSH or FETCH, after waiting for the answer to the previous one.

        The answer overwrites `room` in `wait`. A push is the sum of `number` pushes, whose bytes are counted for `purpose`;
        a fetch, whose vector is empty, is counted as `control`.
        """
        self.wait()
        payload = self.feedback.encode(vector) if kind == PUSH else vector
        counted = purpose if kind == PUSH else "control"
        self._send(Header(kind, self.stop_requested, number), payload, counted)
        self._pending = kind, room

    def wait(self) -> int:
        """Wait for the pending answer, if any; return the number of updates since the previous answer."""
        if self._pending is None:
            return 0
        (kind, room), self._pending = self._pending, None
        # The answer's header is its tag, which is not known in advance.
        tag = self._comm.probe(self._server).tag
        self._comm.receive(room, self._server, tag)
        answer = Header.from_tag(tag)
        self.stop_ordered = answer.stop
        if kind == PUSH:
            # One of the updates since the previous answer is this rank's own push.
            self.staleness[answer.number - 1] += 1
        return answer.number

    def disconnect(self, nothing: Tensor) -> None:
        """Notify the server that no more requests follow; `nothing` is an empty vector."""
        self.wait()
        self._send(Header(DISCONNECT, self.stop_requested), nothing, "control")

    def _send(self, header: Header, vector: Tensor, purpose: str) -> None:
        self._comm.send(vector, self._server, header.tag, purpose)
