"""How vectors move between ranks: the calls that every transport implements and algorithms use."""

from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from torch import Tensor

ANY = -1
GATHERED = 32_768  # bytes up to which one round of messages beats two


class PeerLostError(Exception):
    """A peer died or stayed silent for too long; the message names it."""


@dataclass(frozen=True)
class Message:
    """A message that has arrived and waits to be received."""

    source: int
    tag: int


def allreduce_bytes(vector: Tensor, rank: int, ranks: int) -> int:
    """Return the bytes that `rank` sends in a reproducible all-reduce.

    Up to GATHERED in all, every rank sends its vector to every other; else each sends the others their chunks and
    then its own chunk of the sum: the bytes of a ring.
    """
    values, width = vector.numel(), vector.element_size()
    if values * width * (ranks - 1) <= GATHERED:
        return values * width * (ranks - 1)
    mine = values // ranks + (rank < values % ranks)
    return (values - mine + mine * (ranks - 1)) * width


@dataclass
class Request:
    """A call under way; the vectors it was given must not be touched before `wait` returns."""

    wait: Callable[[], None]


class Communicator(ABC):
    """A group of ranks. Vectors are contiguous one-dimensional tensors.

    Every wait is bounded and raises PeerLostError naming the ranks it waited for. `purpose` says what the bytes are
    for, in `bytes_sent`. `seconds` splits the time of this rank into `communication` and `wait` (idle polling).
    """

    rank: int
    size: int

    def __init__(self) -> None:
        self.bytes_sent: Counter[str] = Counter()
        self.seconds: defaultdict[str, float] = defaultdict(float)

    @abstractmethod
    def split(self, color: int) -> "Communicator":
        """Return the communicator of the ranks that gave the same `color`, in rank order.

        It adds to this one's `bytes_sent` and `seconds`.
        """

    def _counting_into(self: Self, parent: "Communicator") -> Self:
        self.bytes_sent, self.seconds = parent.bytes_sent, parent.seconds
        return self

    @abstractmethod
    def barrier(self) -> None:
        """Wait until every rank has called this."""

    @abstractmethod
    def broadcast(self, vector: Tensor, root: int = 0, purpose: str = "parameters") -> None:
        """Overwrite `vector` on every rank by that of `root`."""

    @abstractmethod
    def iallreduce(self, vector: Tensor, purpose: str = "gradient") -> Request:
        """Start to overwrite `vector` on every rank by the sum over ranks."""

    def allreduce(self, vector: Tensor, purpose: str = "gradient") -> None:
        """Overwrite `vector` on every rank by the sum over ranks."""
        self.iallreduce(vector, purpose).wait()

    @abstractmethod
    def exchange(
        self, outgoing: Mapping[int, Tensor], incoming: Mapping[int, Tensor], purpose: str = "parameters"
    ) -> None:
        """Send a vector to each neighbour and receive one from each, by neighbour's rank."""

    @abstractmethod
    def send(self, vector: Tensor, to: int, tag: int = 0, purpose: str = "parameters") -> None:
        """Send `vector`, which may be reused at once; a large one may wait until `to` received the one before.

        Messages from one rank to another arrive in the order they were sent.
        """

    @abstractmethod
    def receive(self, vector: Tensor, source: int, tag: int = 0) -> None:
        """Overwrite `vector` by the next one that `source` sent with `tag`."""

    @abstractmethod
    def probe(self, source: int = ANY, tag: int = ANY) -> Message:
        """Wait for a message and say whose it is, without receiving it."""

    @abstractmethod
    def arrived(self, source: int = ANY, tag: int = ANY) -> Message | None:
        """Say whose message has arrived, without receiving it; None at once if there is none."""

    @abstractmethod
    def gather(self, item: Any) -> list[Any]:
        """Return every rank's `item` (small, anything JSON can carry) on every rank."""

    @abstractmethod
    def now(self) -> float:
        """Return the seconds on this rank's clock."""

    def computed(self, samples: int) -> None:
        """Tell a virtual clock that a mini-batch of `samples` was computed; real clocks run by themselves."""
