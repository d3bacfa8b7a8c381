"""Ranks as greenlets in one process, one at a time, under a virtual clock: every run replays bit for bit.

A rank runs until it must wait; the rank with the earliest clock goes on (ties: the lowest rank), so a message is
never received before one that arrived earlier. A message of b bytes arrives latency + b / bandwidth after it was sent.
"""

import heapq
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from greenlet import getcurrent, greenlet
from torch import Tensor

from nnlo_lib.comm.communicator import ANY, Communicator, Message, PeerLostError, Request, allreduce_bytes
from nnlo_lib.config import Simulation

T = TypeVar("T")


@dataclass
class _Process:
    """One simulated rank of the whole world."""

    number: int
    clock: float = 0.0
    woken: float = 0.0
    waits_for: str = ""


class World:
    """A simulated machine: runs one program on `size` ranks.

    >>> World(4).run(lambda comm: comm.rank)
    [0, 1, 2, 3]
    """

    def __init__(self, size: int, machine: Simulation | None = None) -> None:
        self.size, self.machine = size, machine or Simulation()
        self._processes = [_Process(number) for number in range(size)]
        self._greenlets: list[greenlet] = []
        self._ready: list[tuple[float, int]] = []

    def run(self, program: Callable[[Communicator], T]) -> list[T]:
        """Run `program` on every rank and return what each returned; the first exception ends all."""
        results: dict[int, T] = {}
        group = _Group(self, self._processes)
        for process in self._processes:
            comm = SimulatedCommunicator(group, process.number)
            self._greenlets.append(greenlet(lambda comm=comm: results.update({comm.rank: program(comm)})))
            self.wake(process, 0.0)
        while len(results) < self.size:
            self._step()
        return [results[rank] for rank in range(self.size)]

    def _step(self) -> None:
        if not self._ready:
            waiting = ", ".join(f"rank {p.number} for {p.waits_for}" for p in self._processes if p.waits_for)
            raise PeerLostError(f"nobody can go on: {waiting}")
        time, number = heapq.heappop(self._ready)
        process = self._processes[number]
        process.woken, process.clock = time, max(process.clock, time)
        if not self._greenlets[number].dead:
            self._greenlets[number].switch()

    def wake(self, process: _Process, time: float) -> None:
        """Let `process` go on at `time`."""
        heapq.heappush(self._ready, (time, process.number))

    def pause(self, process: _Process) -> None:
        """Let every rank with an earlier clock go first."""
        self.wake(process, process.clock)
        process.woken = -1.0
        while process.woken < process.clock:  # an old message may wake it too early
            _hub().switch()

    def wait_until(self, process: _Process, what: str, done: Callable[[], bool]) -> None:
        """Sleep until `done`; whoever makes it true wakes this process."""
        process.waits_for = what
        while not done():
            _hub().switch()
        process.waits_for = ""

    def transfer(self, size: int) -> float:
        """Return the seconds that a message of `size` bytes is under way."""
        return self.machine.latency + size / self.machine.bandwidth


def _hub() -> greenlet:
    parent = getcurrent().parent
    assert parent is not None
    return parent


@dataclass(order=True)
class _Envelope:
    """A message on its way."""

    arrival: float
    number: int
    source: int = field(compare=False)
    tag: int = field(compare=False)
    vector: Tensor = field(compare=False)


@dataclass
class _Meeting:
    """A collective call under way: what each rank brought, and what comes of it."""

    brought: dict[int, Any] = field(default_factory=dict)
    result: Any = None
    end: float | None = None


class _Group:
    """What the ranks of one communicator share."""

    def __init__(self, world: World, members: list[_Process]) -> None:
        self.world, self.members = world, members
        self.mailboxes: list[list[_Envelope]] = [[] for _ in members]
        self.meetings: dict[int, _Meeting] = {}
        self.posted = 0


class SimulatedCommunicator(Communicator):
    """One rank of a simulated group."""

    def __init__(self, group: _Group, rank: int) -> None:
        super().__init__()
        self._group, self._world = group, group.world
        self.rank, self.size = rank, len(group.members)
        self._process = group.members[rank]
        self._calls = 0
        self._last_arrival: dict[int, float] = {}

    def now(self) -> float:
        return self._process.clock

    def computed(self, samples: int) -> None:
        self._process.clock += samples * self._world.machine.sample_seconds

    def sleep_while_computing(self, samples: int) -> None:
        """Advance the clock by the time to compute `samples`, and let every rank with an earlier clock go first."""
        self.computed(samples)
        self._world.pause(self._process)

    def split(self, color: int) -> "SimulatedCommunicator":
        members: dict[int, list[int]] = {}
        for rank, chosen in enumerate(self.gather(color)):
            members.setdefault(chosen, []).append(rank)

        def groups(_: list[Any]) -> dict[int, _Group]:
            return {
                key: _Group(self._world, [self._group.members[rank] for rank in ranks])
                for key, ranks in members.items()
            }

        shared = self._meet(None, groups, 0)[color]
        return SimulatedCommunicator(shared, members[color].index(self.rank))._counting_into(self)

    def barrier(self) -> None:
        self._meet(None, lambda _: None, 0)

    def gather(self, item: Any) -> list[Any]:
        text = json.dumps(item)
        texts = self._meet(text, list, len(text))
        return [json.loads(one) for one in texts]

    def broadcast(self, vector: Tensor, root: int = 0, purpose: str = "parameters") -> None:
        size = _bytes(vector)
        if self.rank == root:
            self.bytes_sent[purpose] += size * (self.size - 1)
        brought = vector.clone() if self.rank == root else None
        vector.copy_(self._meet(brought, lambda vectors: vectors[root], size))

    def iallreduce(self, vector: Tensor, purpose: str = "gradient") -> Request:
        share = allreduce_bytes(vector, self.rank, self.size)
        self.bytes_sent[purpose] += share
        meeting = self._join(vector.clone(), _sum_in_rank_order, share)
        return Request(lambda: void(vector.copy_(self._leave(meeting, "an all-reduce"))))

    def exchange(
        self, outgoing: Mapping[int, Tensor], incoming: Mapping[int, Tensor], purpose: str = "parameters"
    ) -> None:
        for peer, vector in outgoing.items():
            self.send(vector, peer, purpose=purpose)
        for peer, vector in incoming.items():
            self.receive(vector, peer)

    def send(self, vector: Tensor, to: int, tag: int = 0, purpose: str = "parameters") -> None:
        self.bytes_sent[purpose] += _bytes(vector)
        arrival = max(self.now() + self._world.transfer(_bytes(vector)), self._last_arrival.get(to, 0.0))
        self._last_arrival[to] = arrival  # a message never overtakes another to the same rank
        self._group.posted += 1
        letter = _Envelope(arrival, self._group.posted, self.rank, tag, vector.clone())
        heapq.heappush(self._group.mailboxes[to], letter)
        self._world.wake(self._group.members[to], arrival)

    def receive(self, vector: Tensor, source: int, tag: int = 0) -> None:
        letter = self._await(source, tag)
        self._group.mailboxes[self.rank].remove(letter)
        heapq.heapify(self._group.mailboxes[self.rank])
        vector.copy_(letter.vector)

    def probe(self, source: int = ANY, tag: int = ANY) -> Message:
        letter = self._await(source, tag)
        return Message(letter.source, letter.tag)

    def arrived(self, source: int = ANY, tag: int = ANY) -> Message | None:
        self._world.pause(self._process)
        letters = self._letters(source, tag)
        return Message(min(letters).source, min(letters).tag) if letters else None

    def _letters(self, source: int, tag: int) -> list[_Envelope]:
        """Return the matching letters that have arrived by this rank's clock."""
        return [
            letter
            for letter in self._group.mailboxes[self.rank]
            if source in (ANY, letter.source) and tag in (ANY, letter.tag) and letter.arrival <= self.now()
        ]

    def _await(self, source: int, tag: int) -> _Envelope:
        """Wait for the earliest matching letter that has arrived by this rank's clock."""
        found: list[_Envelope] = []

        def arrived() -> bool:
            found[:] = self._letters(source, tag)
            return bool(found)

        started = self.now()
        self._world.pause(self._process)
        self._world.wait_until(self._process, f"a message from {_who(source)}", arrived)
        self.seconds["wait"] += self.now() - started
        return min(found)

    def _join(self, item: Any, finish: Callable[[list[Any]], Any], size: int) -> _Meeting:
        """Bring `item` to this rank's next collective call; the last to come computes the result."""
        call, self._calls = self._calls, self._calls + 1
        meeting = self._group.meetings.setdefault(call, _Meeting())
        meeting.brought[self.rank] = (self.now(), item)
        if len(meeting.brought) == self.size:
            del self._group.meetings[call]
            items = [meeting.brought[rank][1] for rank in range(self.size)]
            meeting.result = finish(items)
            meeting.end = max(time for time, _ in meeting.brought.values()) + self._world.transfer(size)
            for process in self._group.members:
                self._world.wake(process, meeting.end)
        return meeting

    def _leave(self, meeting: _Meeting, what: str) -> Any:
        started = self.now()
        self._world.wait_until(
            self._process, what, lambda: meeting.end is not None and meeting.end <= self.now()
        )
        self.seconds["wait"] += self.now() - started
        return meeting.result

    def _meet(self, item: Any, finish: Callable[[list[Any]], Any], size: int) -> Any:
        return self._leave(self._join(item, finish, size), "a collective call")


def void(_: object) -> None:
    """Forget a value."""


def _sum_in_rank_order(vectors: list[Tensor]) -> Tensor:
    total = vectors[0]
    for vector in vectors[1:]:
        total = torch.add(total, vector)
    return total


def _bytes(vector: Tensor) -> int:
    return vector.numel() * vector.element_size()


def _who(source: int) -> str:
    return "anyone" if source == ANY else f"rank {source}"
