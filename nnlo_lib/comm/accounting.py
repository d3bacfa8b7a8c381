"""What a rank sends: bytes and messages, by purpose and by edge. One count for every transport."""

from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any, Self

ALLGATHER_MAX_BYTES = 32_768  # bytes up to which one round of messages beats two


def allreduce_bytes(values: int, width: int, rank: int, ranks: int) -> int:
    """Return the bytes that `rank` sends in a reproducible all-reduce of `values` numbers of `width` bytes.

    Up to ALLGATHER_MAX_BYTES in all, every rank sends its vector to every other; else each sends the others their chunks and
    then its own chunk of the sum: the bytes of a ring.
    """
    if allreduce_rounds(values, width, ranks) == 1:
        return values * width * (ranks - 1)
    mine = values // ranks + (rank < values % ranks)
    return (values - mine + mine * (ranks - 1)) * width


def allreduce_rounds(values: int, width: int, ranks: int) -> int:
    """Return how many rounds of messages, from every rank to every other, such an all-reduce takes."""
    return 1 if values * width * (ranks - 1) <= ALLGATHER_MAX_BYTES else 2


class Traffic:
    """Bytes and messages that one rank sent.

    bytes_sent, messages_sent: by purpose. edges: [messages, bytes] of what went point to point, by the peer's rank in
    the world. A collective call counts as the messages of its algorithm, and on no edge.
    """

    def __init__(self) -> None:
        self.bytes_sent: Counter[str] = Counter()
        self.messages_sent: Counter[str] = Counter()
        self.edges: dict[int, list[int]] = {}

    def count_message(self, size: int, peer: int, purpose: str) -> int:
        """Count a message of `size` bytes; return how many went to `peer` by now."""
        self._add(1, size, purpose)
        return self._along(peer, 1, size)

    def count_broadcast(self, size: int, ranks: int, purpose: str) -> None:
        """Count what the root of a broadcast sends."""
        self._add(ranks - 1, size * (ranks - 1), purpose)

    def count_allreduce(self, values: int, width: int, rank: int, ranks: int, purpose: str) -> int:
        """Count a reproducible all-reduce; return the bytes that `rank` sends."""
        size = allreduce_bytes(values, width, rank, ranks)
        self._add(allreduce_rounds(values, width, ranks) * (ranks - 1), size, purpose)
        return size

    def count_ring(self, size: int, ranks: int, purpose: str) -> None:
        """Count a library's all-reduce of `size` bytes as if it were a ring."""
        self._add(2 * (ranks - 1), 2 * size * (ranks - 1) // ranks, purpose)

    def _add(self, messages: int, size: int, purpose: str) -> None:
        if messages:
            self.messages_sent[purpose] += messages
            self.bytes_sent[purpose] += size

    def _along(self, peer: int, messages: int, size: int) -> int:
        edge = self.edges.setdefault(peer, [0, 0])
        edge[0] += messages
        edge[1] += size
        return edge[0]

    def __add__(self, other: "Traffic") -> "Traffic":
        total = Traffic()
        for part in (self, other):
            total.bytes_sent.update(part.bytes_sent)
            total.messages_sent.update(part.messages_sent)
            for peer, (messages, size) in part.edges.items():
                total._along(peer, messages, size)
        return total

    def state(self) -> dict[str, Any]:
        """Return the counts as JSON carries them; `edges` as [peer, messages, bytes]."""
        edges = [[peer, *counts] for peer, counts in sorted(self.edges.items())]
        return {"bytes": dict(self.bytes_sent), "messages": dict(self.messages_sent), "edges": edges}

    @classmethod
    def load(cls, state: dict[str, Any]) -> Self:
        """Return the counts that `state` holds."""
        traffic = cls()
        traffic.bytes_sent.update(state["bytes"])
        traffic.messages_sent.update(state["messages"])
        traffic.edges = {peer: [messages, size] for peer, messages, size in state["edges"]}
        return traffic


Listener = Callable[[str, str, float, float], None]  # name, phase, start and end in seconds


class PhaseSeconds(defaultdict[str, float]):
    """Seconds by phase (`communication`, `wait`). listener: is told of each span, if there is one."""

    def __init__(self) -> None:
        super().__init__(float)
        self.listener: Listener | None = None

    def report_span(self, name: str, phase: str, start: float, end: float) -> None:
        """Tell of a span; spans nest, and those inside are told first."""
        if self.listener is not None:
            self.listener(name, phase, start, end)
