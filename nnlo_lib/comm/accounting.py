"""Traffic of a rank: bytes and messages sent, by purpose and by edge, and seconds by phase; counted alike for every transport."""

from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any, Self

ALLGATHER_MAX_BYTES = 32_768  # up to here one round of messages is faster than two
# Compiled loops may round the last few values of a vector differently from the others: parts end at whole blocks.
PART_BLOCK = 64


def parts_of(values: int, ranks: int) -> list[slice]:
    """Return the ranks' parts of a vector in a reduce-scatter: equal, except that the last ones may be shorter or empty."""
    most = -(-values // (ranks * PART_BLOCK)) * PART_BLOCK
    return [slice(min(rank * most, values), min((rank + 1) * most, values)) for rank in range(ranks)]


def allreduce_bytes(values: int, width: int, rank: int, ranks: int) -> int:
    """Return the bytes that a rank sends in a reproducible all-reduce of `values` values of `width` bytes.

    If a rank can send its vector to all other ranks in at most ALLGATHER_MAX_BYTES, it does so. Otherwise
    each rank sends the other ranks their chunks and then its own chunk of the sum: the bytes of a ring. The
    first ranks have larger chunks if the chunks are unequal.
    """
    if allreduce_rounds(values, width, ranks) == 1:
        return values * width * (ranks - 1)
    # The division of np.array_split, by which the MPI transport cuts its vectors.
    mine = values // ranks + (rank < values % ranks)
    return (values - mine + mine * (ranks - 1)) * width


def allreduce_rounds(values: int, width: int, ranks: int) -> int:
    """Return the number of rounds of a reproducible all-reduce; each rank sends to all others in a round."""
    return 1 if values * width * (ranks - 1) <= ALLGATHER_MAX_BYTES else 2


class Traffic:
    """Bytes and messages that one rank sent.

    A collective call counts as the messages of its algorithm and does not appear in `edges`.
    """

    def __init__(self) -> None:
        self.bytes_sent: Counter[str] = Counter()
        self.messages_sent: Counter[str] = Counter()
        self.edges: dict[int, list[int]] = {}  # [messages, bytes] by the peer's rank in the world

    def count_message(self, size: int, peer: int, purpose: str) -> int:
        """Count a message of `size` bytes to `peer`, a rank in the world; return the number of messages to it so far."""
        self._add(1, size, purpose)
        return self._along(peer, 1, size)

    def count_broadcast(self, size: int, ranks: int, purpose: str) -> None:
        """Count the messages that the root of a broadcast of `size` bytes sends; `ranks` include the root."""
        self._add(ranks - 1, size * (ranks - 1), purpose)

    def count_allreduce(self, values: int, width: int, rank: int, ranks: int, purpose: str) -> int:
        """Count a reproducible all-reduce; return the bytes that this rank sends (see `allreduce_bytes`)."""
        size = allreduce_bytes(values, width, rank, ranks)
        self._add(allreduce_rounds(values, width, ranks) * (ranks - 1), size, purpose)
        return size

    def count_parts(self, size: int, ranks: int, purpose: str) -> None:
        """Count the messages of parts of a vector, `size` bytes in all, to the other ranks."""
        self._add(ranks - 1, size, purpose)

    def count_ring(self, size: int, ranks: int, purpose: str) -> None:
        """Count an all-reduce of `size` bytes by a library, whose algorithm is unknown, as if it were a ring."""
        self._add(2 * (ranks - 1), 2 * size * (ranks - 1) // ranks, purpose)

    def clear(self) -> None:
        """Set all counts to zero."""
        for counts in (self.bytes_sent, self.messages_sent, self.edges):
            counts.clear()

    def _add(self, messages: int, size: int, purpose: str) -> None:
        # A call of a single rank sends nothing: its purpose must not appear in the counters.
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
        """Return the counts as JSON-serializable values; `edges` as [peer, messages, bytes]."""
        # A list, because JSON would turn the integer keys of an object into strings.
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
    """Seconds by phase (`communication`, `wait`)."""

    def __init__(self) -> None:
        super().__init__(float)
        self.listener: Listener | None = None

    def report_span(self, name: str, phase: str, start: float, end: float) -> None:
        """Pass a span, in seconds on the communicator's clock, to the listener. Inner spans are reported before outer ones."""
        if self.listener is not None:
            self.listener(name, phase, start, end)
