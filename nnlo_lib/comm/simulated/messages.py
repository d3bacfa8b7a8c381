"""Messages between simulated ranks, from when they are sent to when they are received."""

from collections import deque
from dataclasses import dataclass, field

from torch import Tensor

from nnlo_lib.comm.communicator import ANY


@dataclass(eq=False, slots=True)
class SimMessage:
    """A message on its way, or arrived."""

    arrival: float
    source: int
    tag: int
    vector: Tensor


@dataclass(eq=False)
class MessageQueue:
    """What one rank has not received: the letters of each source in their order. awaited: source and tag, or None."""

    by_source: dict[int, deque[SimMessage]] = field(default_factory=dict)
    awaited: tuple[int, int] | None = None

    def deliver(self, letter: SimMessage) -> bool:
        """Add a letter; say whether its receiver waits for it."""
        self.by_source.setdefault(letter.source, deque()).append(letter)
        return self.awaited is not None and _matches(letter, *self.awaited)

    def first(self, source: int, tag: int) -> SimMessage | None:
        """Return the matching letter that arrives first (ties: the lowest source)."""
        if source != ANY:
            return self._head(source, tag)
        heads = (letter for one in self.by_source if (letter := self._head(one, tag)))
        return min(heads, key=lambda letter: (letter.arrival, letter.source), default=None)

    def _head(self, source: int, tag: int) -> SimMessage | None:
        return next((letter for letter in self.by_source.get(source, ()) if tag in (ANY, letter.tag)), None)

    def remove(self, letter: SimMessage) -> None:
        """Remove a letter."""
        queue = self.by_source[letter.source]
        queue.remove(letter)
        if not queue:
            del self.by_source[letter.source]


def _matches(letter: SimMessage, source: int, tag: int) -> bool:
    return source in (ANY, letter.source) and tag in (ANY, letter.tag)
