"""Messages between simulated ranks, from sending to receiving."""

from collections import deque
from dataclasses import dataclass, field

from torch import Tensor

from nnlo_lib.comm.communicator import ANY


@dataclass(eq=False, slots=True)
class SimMessage:
    """A message in transit or arrived; `arrival` is in virtual seconds."""

    arrival: float
    source: int
    tag: int
    vector: Tensor


@dataclass(eq=False)
class MessageQueue:
    """Messages that one rank has not received yet.

    Attributes:
        by_source: the messages of each source in the order they were sent.
        awaited: source and tag of the message that the rank waits for, if any.
    """

    by_source: dict[int, deque[SimMessage]] = field(default_factory=dict)
    awaited: tuple[int, int] | None = None

    def deliver(self, message: SimMessage) -> bool:
        """Add a message; return True if the receiver waits for it."""
        self.by_source.setdefault(message.source, deque()).append(message)
        return self.awaited is not None and _matches(message, *self.awaited)

    def first(self, source: int, tag: int) -> SimMessage | None:
        """Return the matching message that arrives first (ties: the lowest source)."""
        if source != ANY:
            return self._head(source, tag)
        heads = (message for one in self.by_source if (message := self._head(one, tag)))
        return min(heads, key=lambda message: (message.arrival, message.source), default=None)

    def _head(self, source: int, tag: int) -> SimMessage | None:
        return next(
            (message for message in self.by_source.get(source, ()) if tag in (ANY, message.tag)), None
        )

    def remove(self, message: SimMessage) -> None:
        """Remove a message."""
        queue = self.by_source[message.source]
        # By identity (eq=False): a comparison of the fields would compare tensors.
        queue.remove(message)
        if not queue:
            del self.by_source[message.source]


def _matches(message: SimMessage, source: int, tag: int) -> bool:
    return source in (ANY, message.source) and tag in (ANY, message.tag)
