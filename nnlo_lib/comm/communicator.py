"""How vectors move between ranks: the calls that every transport implements and algorithms use."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from torch import Tensor

from nnlo_lib.comm.accounting import PhaseSeconds, Traffic
from nnlo_lib.comm.midpass import PassCollectives

ANY = -1


class PeerLostError(Exception):
    """A peer died or stayed silent for too long; the message names it."""


@dataclass(frozen=True)
class Message:
    """A message that has arrived and waits to be received."""

    source: int
    tag: int


@dataclass
class Request:
    """A call under way; the vectors it was given must not be touched before `wait` returns."""

    wait: Callable[[], None]


class Communicator(ABC):
    """A group of ranks. Vectors are contiguous one-dimensional tensors.

    Every wait is bounded and raises PeerLostError naming the ranks it waited for. `purpose` says what the bytes are
    for, in `traffic`. `seconds` splits the time of this rank into `communication` and `wait` (idle polling).
    is_virtual: whether the ranks share one process and a clock that is computed.
    """

    is_virtual = False

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self.traffic = Traffic()
        self.seconds = PhaseSeconds()
        self._world_ranks: Sequence[int] = range(size)

    @property
    def bytes_sent(self) -> Counter[str]:
        """Bytes that this rank sent, by purpose."""
        return self.traffic.bytes_sent

    @property
    def messages_sent(self) -> Counter[str]:
        """Messages that this rank sent, by purpose."""
        return self.traffic.messages_sent

    @abstractmethod
    def split(self, color: int) -> "Communicator":
        """Return the communicator of the ranks that gave the same `color`, in rank order.

        It adds to this one's `traffic` and `seconds`.
        """

    def _counting_into(self, parent: "Communicator", members: Sequence[int]) -> Self:
        """Count as a part of `parent`, made of its ranks `members`."""
        self.traffic, self.seconds = parent.traffic, parent.seconds
        self._world_ranks = [parent._world_ranks[rank] for rank in members]
        return self

    def _count(self, vector: Tensor, to: int, purpose: str) -> int:
        """Count a message to `to`; return its number on that edge."""
        return self.traffic.count_message(vector.nbytes, self._world_ranks[to], purpose)

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
        """Send `vector`, which may be reused at once; never waits for `to`.

        Messages from one rank to another arrive in the order they were sent. Each keeps a copy in memory until `to`
        has received it: what nobody receives is the only bound.
        """

    @abstractmethod
    def receive(self, vector: Tensor, source: int, tag: int = 0) -> None:
        """Overwrite `vector` by the next one that `source` sent with `tag`."""

    @abstractmethod
    def probe(self, source: int = ANY, tag: int = ANY) -> Message:
        """Wait for a message and say whose it is, without receiving it."""

    @abstractmethod
    def iprobe(self, source: int = ANY, tag: int = ANY) -> Message | None:
        """Say whose message has arrived, without receiving it; None at once if there is none."""

    @abstractmethod
    def reset_counter(self, start: int) -> None:
        """Let `ticket` count from `start`; all ranks call it."""

    @abstractmethod
    def next_index(self) -> int:
        """Return the next number: each goes to one rank only, in the order in which ranks ask."""

    @abstractmethod
    def gather(self, item: Any) -> list[Any]:
        """Return every rank's `item` (small, anything JSON can carry) on every rank."""

    @abstractmethod
    def now(self) -> float:
        """Return the seconds on this rank's clock."""

    def advance_clock(self, samples: int) -> None:
        """Tell a virtual clock that a mini-batch of `samples` was computed; real clocks run by themselves."""

    def advance_clock_and_yield(self, samples: int) -> None:
        """Advance a virtual clock as `advance_clock` does, and let every rank with an earlier clock go first."""

    def pass_collectives(self) -> PassCollectives:
        """Return the sums over ranks that a forward or backward pass may ask for on its way."""
        return PassCollectives(self.allreduce)

    def use_gpu_reduction(self, way: str, timeout: float, fastest: bool) -> None:
        """Sum vectors on GPUs by `nccl`, by `cuda_aware` MPI or through the `host`; all ranks call it.

        timeout: seconds that NCCL waits for a peer; fastest: whether NCCL chooses the order of adding.
        """
        if way != "host":
            raise TypeError(f"{type(self).__name__} sums vectors on GPUs through host memory only")
