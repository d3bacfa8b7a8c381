"""Ranks as greenlets in one process, one at a time, under a virtual clock: every run replays bit for bit.

What a rank receives never depends on who ran first: a message from a named rank is the next on its edge, and a rank
that looks at what came from anyone first lets all ranks with an earlier clock go on.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import Any, TypeVar

from torch import Tensor

from nnlo_lib.comm.communicator import ANY, Communicator, Message, Request
from nnlo_lib.comm.letters import Letter, Letters
from nnlo_lib.comm.machine import Call, Machine
from nnlo_lib.comm.scheduler import Process, Scheduler
from nnlo_lib.comm.traffic import allreduce_rounds
from nnlo_lib.config.parallel import Simulation

T = TypeVar("T")


class World:
    """A simulated machine: runs one program on `size` ranks.

    >>> World(4).run(lambda comm: comm.rank)
    [0, 1, 2, 3]
    """

    def __init__(self, size: int, settings: Simulation | None = None, seed: int = 0) -> None:
        self.size = size
        self.machine = Machine(settings or Simulation(), size, seed)
        self.scheduler = Scheduler(size, self.machine.resume)
        self.groups = count()

    def run(self, program: Callable[[Communicator], T]) -> list[T]:
        """Run `program` on every rank and return what each returned; the first exception ends all."""
        results: dict[int, T] = {}
        group = _Group(self, self.scheduler.processes)

        def run_rank(rank: int) -> None:
            results[rank] = program(SimulatedCommunicator(group, rank))

        self.scheduler.run([partial(run_rank, rank) for rank in range(self.size)])
        return [results[rank] for rank in range(self.size)]


@dataclass(eq=False)
class _Meeting:
    """A collective call under way: what each rank brought, and what comes of it at its end."""

    number: int
    brought: dict[int, Any] = field(default_factory=dict)
    start: float = 0.0
    size: int = 0
    result: Any = None
    end: float | None = None


class _Group:
    """What the ranks of one communicator share."""

    def __init__(self, world: World, members: list[Process]) -> None:
        self.world, self.members, self.number = world, members, next(world.groups)
        self.mailboxes = [Letters() for _ in members]
        self.meetings: dict[int, _Meeting] = {}
        self.tickets = 0


class SimulatedCommunicator(Communicator):
    """One rank of a simulated group."""

    def __init__(self, group: _Group, rank: int) -> None:
        super().__init__(rank, len(group.members))
        self._group, self._mailbox = group, group.mailboxes[rank]
        self._machine, self._scheduler = group.world.machine, group.world.scheduler
        self._process = group.members[rank]
        self._calls = 0

    def now(self) -> float:
        return self._process.clock

    def computed(self, samples: int) -> None:
        process = self._process
        process.clock += self._machine.compute_seconds(process.number, samples, process.clock)

    def sleep_while_computing(self, samples: int) -> None:
        """Compute a mini-batch on the virtual clock and let every rank with an earlier clock go first."""
        self.computed(samples)
        self._scheduler.pause(self._process)

    def split(self, color: int) -> "SimulatedCommunicator":
        members: dict[int, list[int]] = {}
        for rank, chosen in enumerate(self.gather(color)):
            members.setdefault(chosen, []).append(rank)

        def groups(_: list[Any]) -> dict[int, _Group]:
            return {
                key: _Group(self._group.world, [self._group.members[rank] for rank in ranks])
                for key, ranks in members.items()
            }

        shared, mine = self._meet(None, groups, self._everyone_tells_everyone(0))[color], members[color]
        return SimulatedCommunicator(shared, mine.index(self.rank))._counting_into(self, mine)

    def barrier(self) -> None:
        self._meet(None, lambda _: None, self._everyone_tells_everyone(0))

    def deal(self, start: int) -> None:
        self.barrier()
        self._group.tickets = start
        self.barrier()

    def ticket(self) -> int:
        self._scheduler.pause(self._process)
        self._group.tickets += 1
        return self._group.tickets - 1

    def gather(self, item: Any) -> list[Any]:
        text = json.dumps(item)
        texts = self._meet(text, list, self._everyone_tells_everyone(len(text)))
        return [json.loads(one) for one in texts]

    def broadcast(self, vector: Tensor, root: int = 0, purpose: str = "parameters") -> None:
        if self.rank == root:
            self.traffic.broadcast(vector.nbytes, self.size, purpose)
        brought = vector.clone() if self.rank == root else None
        call = Call(vector.nbytes, self.size - 1)
        vector.copy_(self._meet(brought, lambda vectors: vectors[root], call))

    def iallreduce(self, vector: Tensor, purpose: str = "gradient") -> Request:
        values, width = vector.numel(), vector.element_size()
        share = self.traffic.allreduce(values, width, self.rank, self.size, purpose)
        call = self._everyone_tells_everyone(share, allreduce_rounds(values, width, self.size))
        meeting = self._join(vector.clone(), _sum_in_rank_order, call)
        return Request(lambda: void(vector.copy_(self._leave(meeting, "an all-reduce"))))

    def exchange(
        self, outgoing: Mapping[int, Tensor], incoming: Mapping[int, Tensor], purpose: str = "parameters"
    ) -> None:
        distinct = {id(vector): vector for vector in outgoing.values()}
        copies = {key: vector.clone() for key, vector in distinct.items()}
        for peer, vector in outgoing.items():
            self._post(copies[id(vector)], peer, 0, purpose)
        for peer, vector in incoming.items():
            self.receive(vector, peer)

    def send(self, vector: Tensor, to: int, tag: int = 0, purpose: str = "parameters") -> None:
        self._post(vector.clone(), to, tag, purpose)

    def _post(self, vector: Tensor, to: int, tag: int, purpose: str) -> None:
        """Send a vector that nobody will change."""
        sender, receiver = self._process, self._group.members[to]
        number = self._count(vector, to, purpose)
        arrival = self._machine.arrival(sender.number, receiver.number, vector.nbytes, sender.clock, number)
        if self._group.mailboxes[to].post(Letter(arrival, self.rank, tag, vector)):
            self._scheduler.wake(receiver, arrival)

    def receive(self, vector: Tensor, source: int, tag: int = 0) -> None:
        letter = self._await(source, tag)
        self._mailbox.take(letter)
        vector.copy_(letter.vector)

    def probe(self, source: int = ANY, tag: int = ANY) -> Message:
        letter = self._await(source, tag)
        return Message(letter.source, letter.tag)

    def arrived(self, source: int = ANY, tag: int = ANY) -> Message | None:
        self._scheduler.pause(self._process)
        letter = self._mailbox.first(source, tag)
        return Message(letter.source, letter.tag) if letter and letter.arrival <= self.now() else None

    def _await(self, source: int, tag: int) -> Letter:
        """Wait for the matching letter that arrives first."""
        letter = self._first_of_all(tag) if source == ANY else self._next_from(source, tag)
        self._wait_until(letter.arrival)
        return letter

    def _next_from(self, source: int, tag: int) -> Letter:
        while (letter := self._mailbox.first(source, tag)) is None:
            self._sleep(source, tag)
        return letter

    def _first_of_all(self, tag: int) -> Letter:
        """Wait until a letter is there that none still to be sent can arrive before."""
        self._scheduler.pause(self._process)
        while (letter := self._mailbox.first(ANY, tag)) is None or letter.arrival > self._process.woken:
            if letter is not None:
                self._scheduler.wake(self._process, letter.arrival)
            self._sleep(ANY, tag)
        return letter

    def _sleep(self, source: int, tag: int) -> None:
        self._mailbox.awaited = source, tag
        self._scheduler.sleep(self._process, f"a message from {_who(source)}")
        self._mailbox.awaited = None

    def _wait_until(self, time: float) -> None:
        """Set the clock to `time` if it is earlier, or to when this rank is up again."""
        started = self.now()
        self._process.clock = self._machine.awake(self._process.number, max(started, time))
        if (now := self.now()) > started:
            self.seconds["wait"] += now - started
            self.seconds.tell("wait", "wait", started, now)

    def _join(self, item: Any, finish: Callable[[list[Any]], Any], call: Call) -> _Meeting:
        """Bring `item` to this rank's next collective call; the last to come computes the result."""
        number, self._calls = self._calls, self._calls + 1
        meeting = self._group.meetings.setdefault(number, _Meeting(number))
        meeting.brought[self.rank] = item
        meeting.start, meeting.size = max(meeting.start, self.now()), max(meeting.size, call.size)
        if len(meeting.brought) == self.size:
            del self._group.meetings[number]
            self._finish(meeting, finish, replace(call, size=meeting.size))
        return meeting

    def _finish(self, meeting: _Meeting, finish: Callable[[list[Any]], Any], call: Call) -> None:
        meeting.result = finish([meeting.brought[rank] for rank in range(self.size)])
        meeting.end = meeting.start + self._machine.collective(call, self._group.number, meeting.number)
        for process in self._group.members:
            self._scheduler.wake(process, meeting.end)

    def _leave(self, meeting: _Meeting, what: str) -> Any:
        while meeting.end is None:
            self._scheduler.sleep(self._process, what)
        self._wait_until(meeting.end)
        return meeting.result

    def _meet(self, item: Any, finish: Callable[[list[Any]], Any], call: Call) -> Any:
        return self._leave(self._join(item, finish, call), "a collective call")

    def _everyone_tells_everyone(self, size: int, rounds: int = 1) -> Call:
        return Call(size, self.size * (self.size - 1), rounds)


def void(_: object) -> None:
    """Forget a value."""


def _sum_in_rank_order(vectors: list[Tensor]) -> Tensor:
    total = vectors[0]
    for vector in vectors[1:]:
        total.add_(vector)
    return total


def _who(source: int) -> str:
    return "anyone" if source == ANY else f"rank {source}"
