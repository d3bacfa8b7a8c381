"""Communicator, the interface of all transports: the calls that move vectors between ranks, and the failpoints around them."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import wraps
from typing import Any, ParamSpec, Self, TypeVar

import torch
from torch import Tensor

from nnlo_lib.comm.accounting import PhaseSeconds, Traffic, parts_of
from nnlo_lib.core.failpoints import failpoint, failpoints_are_armed

P = ParamSpec("P")
T = TypeVar("T")
WAIT_FAILPOINT = "exchange.wait"
# Not MPI.ANY_SOURCE or MPI.ANY_TAG: their values depend on the MPI library, and callers of a communicator
# must not import mpi4py.
ANY = -1


class PeerLostError(Exception):
    """A peer rank died or did not respond in time; the message names the rank."""

    def __init__(self, message: str, dead: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.dead = list(dead)


@dataclass(frozen=True)
class Message:
    """A message that has arrived and waits to be received."""

    source: int
    tag: int


@dataclass
class Request:
    """A call in progress; the vectors it was given must not be touched before `wait` returns."""

    wait: Callable[[], None]  # returns when the call is complete; call it once


class Communicator(ABC):
    """A group of ranks that exchange vectors: contiguous one-dimensional tensors (P,) on the CPU or a GPU, without autograd.

    Vectors that are received are overwritten in place; vectors that are only sent stay unchanged. A call that "all
    ranks make" is collective: each rank makes it in the same order, with vectors of the same length and dtype
    (float32, float64, an integer type). Every wait is bounded and raises PeerLostError naming the awaited ranks. The
    argument `purpose` is the key under which `traffic` counts the bytes of a call.

    Attributes:
        rank: number of this rank, 0 to `size` - 1.
        size: number of ranks in the group.
        seconds: time of this rank in `communication` and in `wait` (idle polling).
    """

    rank: int
    size: int

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
        """Return the communicator of the ranks that gave the same `color`, in rank order; all ranks make this call.

        Call it in `__init__`. The new communicator adds to the `traffic` and `seconds` of this one.
        """

    def outside_of_time(self) -> AbstractContextManager[None]:
        """Return a context whose collective calls change no virtual clock, for checks that are no part of the algorithm."""
        return nullcontext()

    def machine_state(self) -> dict[str, Any]:
        """Return the state of this rank's virtual machine for a checkpoint; empty if there is none."""
        return {}

    def load_machine_state(self, state: dict[str, Any]) -> None:
        """Restore what `machine_state` returned; all ranks call it."""

    def _counting_into(self, parent: "Communicator", members: Sequence[int]) -> Self:
        """Count into `parent`; `members` are the ranks of this communicator in `parent`. Return self."""
        self.traffic, self.seconds = parent.traffic, parent.seconds
        # Edges of all groups add up in one table, in which ranks have their number in the world.
        self._world_ranks = [parent._world_ranks[rank] for rank in members]
        return self

    def _count(self, vector: Tensor, to: int, purpose: str) -> int:
        """Count a message; return its number on the edge to the receiver."""
        return self.traffic.count_message(vector.nbytes, self._world_ranks[to], purpose)

    @abstractmethod
    def barrier(self) -> None:
        """Wait until all ranks make this call."""

    @abstractmethod
    def broadcast(self, vector: Tensor, root: int = 0, purpose: str = "parameters") -> None:
        """Overwrite `vector` (P,) in place on every rank with the one of rank `root`; all ranks make this call."""

    @abstractmethod
    def iallreduce(self, vector: Tensor, purpose: str = "gradient") -> Request:
        """Start an `allreduce`; all ranks make this call. `wait` of the returned request ends it.

        Several may be in progress, for example one for each part of `grad` that is final.
        """

    def allreduce(self, vector: Tensor, purpose: str = "gradient") -> None:
        """Overwrite `vector` (P,) in place on every rank with the sum over ranks, not the mean; all ranks make this call.

        By default, terms are added in rank order: all ranks get the same bits.
        """
        self.iallreduce(vector, purpose).wait()

    def part(self, values: int) -> slice:
        """Return this rank's part of a vector of `values` in `reduce_scatter` and `allgather`; it may be empty."""
        return parts_of(values, self.size)[self.rank]

    def reduce_scatter(self, vector: Tensor, purpose: str = "gradient") -> None:
        """Overwrite this rank's `part` of `vector` (P,) with the sum over ranks, in rank order; all ranks make this call.

        The other parts stay. With `allgather`, it has the bits of `allreduce`.
        """
        size = (vector.numel() - vector[self.part(vector.numel())].numel()) * vector.element_size()
        self.traffic.count_parts(size, self.size, purpose)
        self.exchange_parts(vector, size, gathers=False)

    def allgather(self, vector: Tensor, purpose: str = "parameters") -> None:
        """Overwrite each other rank's `part` of `vector` (P,) with the values of that rank; all ranks make this call."""
        size = (self.size - 1) * vector[self.part(vector.numel())].nbytes
        self.traffic.count_parts(size, self.size, purpose)
        self.exchange_parts(vector, size, gathers=True)

    @abstractmethod
    def exchange_parts(self, vector: Tensor, size: int, gathers: bool) -> None:
        """Implement `allgather` if `gathers`, else `reduce_scatter`; this rank sends `size` bytes."""

    @abstractmethod
    def exchange(
        self, outgoing: Mapping[int, Tensor], incoming: Mapping[int, Tensor], purpose: str = "parameters"
    ) -> None:
        """Send the vectors `outgoing`, by the receiver's rank, and overwrite those of `incoming`, by the sender's rank.

        Only the ranks that are named take part: each sender names this rank in its `outgoing`. One vector may go to
        several ranks. The call returns when all vectors have been sent and received.
        """

    def exchange_like(
        self, like: Tensor, outgoing: Mapping[int, Tensor], sources: Sequence[int]
    ) -> dict[int, Tensor]:
        """Make an `exchange`; return the vectors of `sources`, each of the length of `like`, which must not be changed.

        Simulated ranks share one copy of a vector that goes to several of them.
        """
        incoming = {source: torch.empty_like(like) for source in sources}
        self.exchange(outgoing, incoming)
        return incoming

    def shared(self, name: str, make: Callable[[], T]) -> T:
        """Return what `make` returns, without messages; simulated ranks share the object that the first one of them makes."""
        return make()

    @abstractmethod
    def send(self, vector: Tensor, to: int, tag: int = 0, purpose: str = "parameters") -> None:
        """Send a vector, which may be changed as soon as the call returns, without waiting for the receiver.

        Messages from one rank to another arrive in the order they were sent. Each message keeps a copy in
        memory until the receiver has received it; the number of copies is not limited. The receiver selects messages by
        their tags, 0 to 32767; `exchange` uses 0.
        """

    @abstractmethod
    def receive(self, vector: Tensor, source: int, tag: int = 0) -> None:
        """Wait for the next matching message and overwrite `vector`, of the sent length and dtype, with it.

        If messages of any rank are expected, `probe` returns the source.
        """

    @abstractmethod
    def probe(self, source: int = ANY, tag: int = ANY) -> Message:
        """Wait for a message and return its source and tag, without receiving it."""

    @abstractmethod
    def iprobe(self, source: int = ANY, tag: int = ANY) -> Message | None:
        """Return an arrived message's source and tag without receiving it, or None; never wait."""

    @abstractmethod
    def reset_counter(self, start: int) -> None:
        """Restart the numbers of `next_index` at `start`; all ranks call it."""

    @abstractmethod
    def next_index(self) -> int:
        """Return the next number: each goes to one rank only, in the order in which ranks ask."""

    @abstractmethod
    def gather(self, item: Any) -> list[Any]:
        """Return every rank's `item`, small and JSON-serializable, in rank order; all ranks make this call."""

    @abstractmethod
    def now(self) -> float:
        """Return the seconds on this rank's clock."""

    def advance_clock(self, samples: int) -> None:
        """Advance a virtual clock by the computing time of `samples` samples; real clocks ignore it."""

    def advance_clock_and_yield(self, samples: int) -> None:
        """Do the same as `advance_clock`, then let every rank with an earlier virtual clock run first."""

    def sum_by_nccl(self, timeout: float, fastest: bool) -> None:
        """Sum vectors on GPUs by NCCL from now on; all ranks call it. Raises TypeError if the transport cannot."""
        raise TypeError(f"{type(self).__name__} does not support NCCL")


def exchange_failpoint(call: Callable[P, T], place: str = "") -> Callable[P, T]:
    """Decorate a method with the failpoint `place`, by default `exchange.<name of the method>`, before and after the call.

    The `wait` of a returned Request passes WAIT_FAILPOINT in the same way. If no failpoint is armed, the
    cost is one test.
    """
    place = place or f"exchange.{call.__name__}"

    @wraps(call)
    def passed(*args: P.args, **kwargs: P.kwargs) -> T:
        if not failpoints_are_armed():
            return call(*args, **kwargs)
        failpoint(place)
        result = call(*args, **kwargs)
        failpoint(place)
        if isinstance(result, Request):
            result.wait = exchange_failpoint(result.wait, WAIT_FAILPOINT)
        return result

    return passed
