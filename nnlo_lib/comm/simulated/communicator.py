"""Simulated ranks, greenlets in one process under a virtual clock, and their messages: every run replays bit for bit.

The messages that a rank receives never depend on the order in which greenlets run. A message from a named
rank is the next one on its edge. Before a rank looks for a message from any source, all ranks with an earlier
clock run first.
"""

import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import Any, TypeVar

import torch
from torch import Tensor

from nnlo_lib.comm.accounting import allreduce_rounds
from nnlo_lib.comm.communicator import ANY, Communicator, Message, Request, exchange_failpoint
from nnlo_lib.comm.simulated.virtual_machine import CollectiveCost, CostModel, EventLoop, SimProcess
from nnlo_lib.config.parallel import SimulationConfig
from nnlo_lib.core.errors import UserError

T = TypeVar("T")


@dataclass(eq=False, slots=True)
class SimMessage:
    """A message in transit or arrived; `arrival` is in virtual seconds."""

    arrival: float
    source: int
    tag: int
    vector: Tensor


@dataclass(eq=False)
class MessageQueue:
    """Messages that one rank has not received yet."""

    by_source: dict[int, deque[SimMessage]] = field(default_factory=dict)
    awaited: tuple[int, int] | None = None  # source and tag of the message that the rank waits for, if any

    def deliver(self, message: SimMessage) -> bool:
        """Add a message; return True if the receiver waits for it."""
        self.by_source.setdefault(message.source, deque()).append(message)
        if self.awaited is None:
            return False
        source, tag = self.awaited
        return source in (ANY, message.source) and tag in (ANY, message.tag)

    def first(self, source: int, tag: int) -> SimMessage | None:
        """Return the matching message that arrives first (ties: the lowest source)."""
        if source != ANY:
            return self._head(source, tag)
        heads = (message for one in self.by_source if (message := self._head(one, tag)))
        return min(heads, key=lambda message: (message.arrival, message.source), default=None)

    def _head(self, source: int, tag: int) -> SimMessage | None:
        messages = self.by_source.get(source, ())
        return next((message for message in messages if tag in (ANY, message.tag)), None)

    def remove(self, message: SimMessage) -> None:
        """Remove a message."""
        queue = self.by_source[message.source]
        # By identity (eq=False): a comparison of the fields would compare tensors.
        queue.remove(message)
        if not queue:
            del self.by_source[message.source]


class SimulatedWorld:
    """A simulated machine: runs one program on `size` ranks.

    >>> SimulatedWorld(4).run(lambda comm: comm.rank)
    [0, 1, 2, 3]
    """

    def __init__(self, size: int, settings: SimulationConfig | None = None, seed: int = 0) -> None:
        self.size = size
        self.cost_model = CostModel(settings or SimulationConfig(), size, seed)
        self.event_loop = EventLoop(size, self.cost_model.restart_stopwatch)
        self.groups = count()
        self.shared: dict[str, Any] = {}  # objects that are equal on all ranks, by name

    def run(self, program: Callable[[Communicator], T]) -> list[T]:
        """Run `program` on every rank and return the results by rank; the first exception ends all ranks."""
        results: dict[int, T] = {}
        group = _Group(self, self.event_loop.processes)

        def run_rank(rank: int) -> None:
            results[rank] = program(SimulatedCommunicator(group, rank))

        self.event_loop.run([partial(run_rank, rank) for rank in range(self.size)])
        return [results[rank] for rank in range(self.size)]


@dataclass(eq=False)
class _Collective:
    """A collective call in progress: the contribution of each rank, and the result when all have called."""

    what: str  # the call, with what must be the same on all ranks; `first` is the rank that made it first
    first: int
    contributions: dict[int, Any] = field(default_factory=dict)
    start: float = 0.0
    size: int = 0
    timed: bool = True  # False if the call changes no clock
    result: Any = None
    end: float | None = None


class _Group:
    """State shared by the ranks of one communicator."""

    def __init__(self, world: SimulatedWorld, members: list[SimProcess]) -> None:
        self.world, self.members, self.number = world, members, next(world.groups)
        self.queues = [MessageQueue() for _ in members]
        self.collectives: dict[int, _Collective] = {}
        self.counter = 0


class SimulatedCommunicator(Communicator):
    """One rank of a simulated group."""

    is_virtual = True

    def __init__(self, group: _Group, rank: int) -> None:
        super().__init__(rank, len(group.members))
        self._group, self._mailbox = group, group.queues[rank]
        self._cost_model, self._event_loop = group.world.cost_model, group.world.event_loop
        self._process = group.members[rank]
        self._calls, self._timed = 0, True

    def now(self) -> float:
        return self._process.clock

    def advance_clock(self, samples: int) -> None:
        process = self._process
        process.clock += self._cost_model.compute_seconds(process.number, samples, process.clock)

    def advance_clock_and_yield(self, samples: int) -> None:
        self.advance_clock(samples)
        self._event_loop.yield_to_earlier(self._process)

    @contextmanager
    def outside_of_time(self) -> Iterator[None]:
        """Make the collective calls inside free of charge: they change no clock and no later draw."""
        self._timed = False
        yield
        self._timed = True

    def machine_state(self) -> dict[str, Any]:
        return {"clock": self.now(), **self._cost_model.state(self._process.number)}

    def load_machine_state(self, state: dict[str, Any]) -> None:
        self._process.clock = state["clock"]
        self._cost_model.load_state(self._process.number, state)
        # Afterwards, each rank is resumed at its own clock.
        with self.outside_of_time():
            self.barrier()

    @exchange_failpoint
    def split(self, color: int) -> "SimulatedCommunicator":
        members: dict[int, list[int]] = {}
        for rank, chosen in enumerate(self.gather(color)):
            members.setdefault(chosen, []).append(rank)

        # Only the last rank to call runs this, so that all members of a group share one object.
        def groups(_: list[Any]) -> dict[int, _Group]:
            return {
                key: _Group(self._group.world, [self._group.members[rank] for rank in ranks])
                for key, ranks in members.items()
            }

        shared = self._run_collective("split()", None, groups, self._all_to_all_cost(0))[color]
        mine = members[color]
        return SimulatedCommunicator(shared, mine.index(self.rank))._counting_into(self, mine)

    @exchange_failpoint
    def barrier(self) -> None:
        self._run_collective("barrier()", None, lambda _: None, self._all_to_all_cost(0))

    @exchange_failpoint
    def reset_counter(self, start: int) -> None:
        # As under MPI: the first barrier waits for ranks that still take numbers of the previous count.
        self.barrier()
        self._group.counter = start
        self.barrier()

    @exchange_failpoint
    def next_index(self) -> int:
        # Ranks with earlier clocks take their numbers first.
        self._event_loop.yield_to_earlier(self._process)
        self._group.counter += 1
        return self._group.counter - 1

    @exchange_failpoint
    def gather(self, item: Any) -> list[Any]:
        # Through JSON as under MPI, so that items have the same types on both transports.
        text = json.dumps(item)
        # The length of a text depends on names of hosts, versions of the code and the interval of checkpoints;
        # a clock that depended on it would order messages that arrive together differently.
        texts = self._run_collective("gather()", text, ",".join, self._all_to_all_cost(0))
        # Each rank gets objects of its own. One call: it is made on each rank, and a text has an item of each rank.
        return list(json.loads(f"[{texts}]"))

    @exchange_failpoint
    def broadcast(self, vector: Tensor, root: int = 0, purpose: str = "parameters") -> None:
        if self.rank == root:
            self.traffic.count_broadcast(vector.nbytes, self.size, purpose)
        sent = vector.clone() if self.rank == root else None
        call = CollectiveCost(vector.nbytes, self.size - 1)
        what = f"broadcast() from rank {root} of {vector.numel():,} numbers of {vector.dtype}"
        vector.copy_(self._run_collective(what, sent, lambda vectors: vectors[root], call))

    @exchange_failpoint
    def iallreduce(self, vector: Tensor, purpose: str = "gradient") -> Request:
        values, width = vector.numel(), vector.element_size()
        share = self.traffic.count_allreduce(values, width, self.rank, self.size, purpose)
        call = self._all_to_all_cost(share, allreduce_rounds(values, width, self.size))
        what = f"allreduce() of {values:,} numbers of {vector.dtype}"
        # Without a copy: no rank may touch its vector before the end of the call.
        pending = self._enter_collective(what, vector, _sum_in_rank_order, call)

        def finish() -> None:
            vector.copy_(self._wait_collective(pending))

        return Request(finish)

    @exchange_failpoint
    def exchange_parts(self, vector: Tensor, size: int, gathers: bool) -> None:
        mine = vector[self.part(vector.numel())]
        what = f"{'allgather' if gathers else 'reduce_scatter'}() of {vector.numel():,} numbers of {vector.dtype}"
        item, finish = (mine, torch.cat) if gathers else (vector, _sum_in_rank_order)
        found = self._run_collective(what, item.clone(), finish, self._all_to_all_cost(size))
        (vector if gathers else mine).copy_(found if gathers else found[self.part(vector.numel())])

    @exchange_failpoint
    def exchange(
        self, outgoing: Mapping[int, Tensor], incoming: Mapping[int, Tensor], purpose: str = "parameters"
    ) -> None:
        for peer, vector in self._exchange(outgoing, list(incoming), purpose).items():
            incoming[peer].copy_(vector)

    @exchange_failpoint
    def exchange_like(
        self, like: Tensor, outgoing: Mapping[int, Tensor], sources: Sequence[int]
    ) -> dict[int, Tensor]:
        return self._exchange(outgoing, sources, "parameters")

    def _exchange(
        self, outgoing: Mapping[int, Tensor], sources: Sequence[int], purpose: str
    ) -> dict[int, Tensor]:
        # A vector that goes to several neighbors is copied only once.
        distinct = {id(vector): vector for vector in outgoing.values()}
        copies = {key: vector.clone() for key, vector in distinct.items()}
        for peer, vector in outgoing.items():
            self._deliver(copies[id(vector)], peer, 0, purpose)
        return {source: self._take(source, 0) for source in sources}

    def shared(self, name: str, make: Callable[[], T]) -> T:
        found = self._group.world.shared
        if name not in found:
            found[name] = make()
        made: T = found[name]
        return made

    @exchange_failpoint
    def send(self, vector: Tensor, to: int, tag: int = 0, purpose: str = "parameters") -> None:
        self._deliver(vector.clone(), to, tag, purpose)

    def _deliver(self, vector: Tensor, to: int, tag: int, purpose: str) -> None:
        """Send, without copying it, a vector that no rank changes afterwards."""
        sender, receiver = self._process, self._group.members[to]
        self._count(vector, to, purpose)
        arrival = self._cost_model.arrival(sender.number, receiver.number, vector.nbytes, sender.clock)
        if self._group.queues[to].deliver(SimMessage(arrival, self.rank, tag, vector)):
            self._event_loop.wake(receiver, arrival)

    @exchange_failpoint
    def receive(self, vector: Tensor, source: int, tag: int = 0) -> None:
        vector.copy_(self._take(source, tag))

    def _take(self, source: int, tag: int) -> Tensor:
        message = self._await(source, tag)
        self._mailbox.remove(message)
        return message.vector

    @exchange_failpoint
    def probe(self, source: int = ANY, tag: int = ANY) -> Message:
        message = self._await(source, tag)
        return Message(message.source, message.tag)

    @exchange_failpoint
    def iprobe(self, source: int = ANY, tag: int = ANY) -> Message | None:
        # Ranks with earlier clocks may still send messages that have arrived by this rank's clock.
        self._event_loop.yield_to_earlier(self._process)
        message = self._mailbox.first(source, tag)
        return Message(message.source, message.tag) if message and message.arrival <= self.now() else None

    def _await(self, source: int, tag: int) -> SimMessage:
        """Wait for the matching message that arrives first; none that is still to be sent can arrive before it."""
        if source == ANY:
            self._event_loop.yield_to_earlier(self._process)
        while True:
            message = self._mailbox.first(source, tag)
            # All other ranks have run up to `resumed_at`: no message that they send later arrives before it.
            if message and (source != ANY or message.arrival <= self._process.resumed_at):
                self._wait_until(message.arrival)
                return message
            if message:
                self._event_loop.wake(self._process, message.arrival)
            self._mailbox.awaited = source, tag
            name = "any rank" if source == ANY else f"rank {source}"
            self._event_loop.block(self._process, f"a message from {name}")
            self._mailbox.awaited = None

    def _wait_until(self, time: float) -> None:
        """Set the clock to `time` if it is earlier, then to the end of an outage of this rank, if any."""
        started = self.now()
        self._process.clock = self._cost_model.wake_time(self._process.number, max(started, time))
        if (now := self.now()) > started:
            self.seconds["wait"] += now - started
            self.seconds.report_span("wait", "wait", started, now)

    def _enter_collective(
        self, what: str, item: Any, finish: Callable[[list[Any]], Any], call: CollectiveCost
    ) -> _Collective:
        """Add an item to this rank's next collective call, which must be that of the other ranks; the last one computes the result.

        `finish` returns the result, common to all ranks, from the items in rank order.
        """
        number, self._calls = self._calls, self._calls + 1
        pending = self._group.collectives.setdefault(number, _Collective(what, self.rank))
        if what != pending.what:
            raise UserError(
                f"rank {self.rank} calls {what} while rank {pending.first} calls {pending.what}: all ranks must make the same "
                "collective calls in the same order, with vectors of the same length and type"
            )
        pending.contributions[self.rank] = item
        pending.timed = self._timed
        # The call begins when the last rank enters it; the largest share of a rank decides its duration.
        pending.start, pending.size = max(pending.start, self.now()), max(pending.size, call.size)
        if len(pending.contributions) == self.size:
            del self._group.collectives[number]
            pending.result, pending.end = (
                finish([pending.contributions[rank] for rank in range(self.size)]),
                0.0,
            )
            if pending.timed:
                cost = replace(call, size=pending.size)
                pending.end = pending.start + self._cost_model.collective(cost, self._group.number)
            for process in self._group.members:
                self._event_loop.wake(process, pending.end if pending.timed else process.clock)
        return pending

    def _wait_collective(self, pending: _Collective) -> Any:
        # A message may also wake the rank before the call ends.
        while pending.end is None:
            self._event_loop.block(self._process, pending.what)
        if pending.timed:
            self._wait_until(pending.end)
        return pending.result

    def _run_collective(
        self, what: str, item: Any, finish: Callable[[list[Any]], Any], call: CollectiveCost
    ) -> Any:
        return self._wait_collective(self._enter_collective(what, item, finish, call))

    def _all_to_all_cost(self, size: int, rounds: int = 1) -> CollectiveCost:
        return CollectiveCost(size, self.size * (self.size - 1), rounds)


def _sum_in_rank_order(vectors: list[Tensor]) -> Tensor:
    total = vectors[0].clone()
    for vector in vectors[1:]:
        total.add_(vector)
    return total
