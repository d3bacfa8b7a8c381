"""Virtual machine of the simulator: a cost model of computing, messages and outages, and the event loop of greenlets."""

import heapq
import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import NormalDist
from time import perf_counter
from typing import Any

from greenlet import getcurrent, greenlet

from nnlo_lib.comm.communicator import PeerLostError
from nnlo_lib.config.parallel import SimulationConfig
from nnlo_lib.core.rng import derive_seed

Interval = tuple[float, float]  # begin and end
NEVER = (math.inf, math.inf)


def uniform(seed: int, purpose: str, *coordinates: int) -> float:
    """Return a number between 0 and 1, both excluded: a pure function of its arguments."""
    # 52 of the 63 bits: a float64 still holds the added half exactly, so that neither 0 nor 1 occurs.
    return ((derive_seed(seed, purpose, *coordinates) >> 11) + 0.5) / 2**52


@dataclass(frozen=True)
class CollectiveCost:
    """Messages of a collective call."""

    size: int  # bytes that one rank sends in all rounds
    messages: int  # messages of all ranks in one round
    rounds: int = 1


class CostModel:
    """Ranks of unequal speed that straggle, fail and return, each with a network card of its own.

    All draws are pure functions of the seed, the rank, edge or group, and the number of steps, messages or calls before.
    The clock of a rank must not decrease from call to call. Times and durations are in virtual seconds, sizes
    in bytes.
    """

    def __init__(self, settings: SimulationConfig, size: int, seed: int) -> None:
        self._settings, self._seed = settings, seed
        self._speeds = settings.speed_of_ranks(size)
        stragglers = settings.stragglers
        shuffled = sorted(range(size), key=lambda rank: uniform(seed, "straggler", rank))
        self._stragglers = {*stragglers.ranks, *shuffled[: round(stragglers.fraction * size)]}
        self._outages = [Outages(_intervals(settings, rank, seed)) for rank in range(size)]
        self._steps = [0] * size
        self._card_free = [0.0] * size
        self._last_arrival: dict[tuple[int, int], float] = {}
        self._messages: dict[int, Counter[int]] = {}  # of a sender, by receiver
        self._calls: Counter[int] = Counter()  # collective calls of each group
        self._resumed = perf_counter()

    def restart_stopwatch(self) -> None:
        """Start to measure the computing time of the rank that is resumed now."""
        self._resumed = perf_counter()

    def state(self, rank: int) -> dict[str, Any]:
        """Return what a rank saves: its steps, when its network card and edges are free, its messages, and all groups' calls."""
        arrivals = {to: time for (source, to), time in self._last_arrival.items() if source == rank}
        steps = {
            "steps": self._steps[rank],
            "card_free": self._card_free[rank],
            "arrivals": [*arrivals.items()],
        }
        sent = self._messages.get(rank, Counter())
        return {"cost": steps, "draws": {"messages": [*sent.items()], "collectives": [*self._calls.items()]}}

    def load_state(self, rank: int, state: dict[str, Any]) -> None:
        """Restore what `state` returned for the rank; its clock must not be earlier than before."""
        cost, draws = state["cost"], state["draws"]
        self._steps[rank], self._card_free[rank] = cost["steps"], cost["card_free"]
        self._last_arrival |= {(rank, to): time for to, time in cost["arrivals"]}
        self._messages[rank] = Counter(dict(draws["messages"]))
        self._calls = Counter(dict(draws["collectives"]))

    def compute_seconds(self, rank: int, samples: int, start: float) -> float:
        """Return the virtual seconds of a rank's next step, which begins at `start`, outages included."""
        step, settings, before = self._steps[rank], self._settings, self._resumed
        self._steps[rank] += 1
        if settings.sample_seconds == "measured":
            self.restart_stopwatch()
            work = self._resumed - before
        else:
            work = samples * settings.sample_seconds
        work /= self._speeds[rank]
        stragglers = settings.stragglers
        if rank in self._stragglers and uniform(self._seed, "straggle", rank, step) < stragglers.probability:
            work *= stragglers.slowdown
        if sigma := settings.jitter:  # a log-normal factor of mean 1
            draw = NormalDist().inv_cdf(uniform(self._seed, "jitter", rank, step))
            work *= math.exp(sigma * draw - sigma**2 / 2)
        return work + self._outages[rank].delay(start, work)

    def wake_time(self, rank: int, time: float) -> float:
        """Return when `rank` acts on an event at `time`: at once, or at the end of its outage."""
        return time + self._outages[rank].delay(time, 0.0)

    def arrival(self, source: int, to: int, size: int, sent: float) -> float:
        """Return when a message arrives; calls must be in the order in which `source` sends its messages.

        The message leaves after all earlier messages of `source` and never arrives before its predecessor on
        the edge.
        """
        messages = self._messages.setdefault(source, Counter())
        messages[to] += 1
        left = max(sent, self._card_free[source]) + size / self._settings.bandwidth
        self._card_free[source] = left
        delay = self._settings.retransmit * self._losses(1, "loss", source, to, messages[to])
        arrival = max(left + self._settings.latency + delay, self._last_arrival.get((source, to), 0.0))
        self._last_arrival[source, to] = arrival
        return arrival

    def _losses(self, messages: int, purpose: str, *coordinates: int) -> int:
        """Return the largest number of losses of one message among `messages` messages sent at once.

        P(at most k) = (1 - loss^(k+1))^messages.
        """
        if not (self._settings.loss and messages):
            return 0
        # Inverse transform sampling; expm1 stays accurate for many messages, where the power is close to 1.
        log_success = math.log1p(-uniform(self._seed, purpose, *coordinates)) / messages
        return int(math.log(-math.expm1(log_success)) / math.log(self._settings.loss))

    def collective(self, call: CollectiveCost, group: int) -> float:
        """Return the duration of the next call of a group; a round waits for its last message."""
        number = self._calls[group]
        self._calls[group] += 1
        lost = sum(
            self._losses(call.messages, "loss of a call", group, number, k) for k in range(call.rounds)
        )
        waits = call.rounds * self._settings.latency + lost * self._settings.retransmit
        return waits + call.size / self._settings.bandwidth


class Outages:
    """Intervals in which one rank makes no progress; calls must be in the order of its clock."""

    def __init__(self, intervals: Iterator[Interval]) -> None:
        self._coming = intervals
        self._next = next(intervals, NEVER)

    def delay(self, start: float, work: float) -> float:
        """Return the seconds by which outages delay `work` seconds of computing that begin at `start`."""
        held = 0.0
        # An outage that begins during the delay of an earlier one delays the work, too.
        while self._next[0] <= start + work + held:
            held += max(0.0, self._next[1] - max(self._next[0], start))
            self._next = next(self._coming, NEVER)
        return held


def _intervals(settings: SimulationConfig, rank: int, seed: int) -> Iterator[Interval]:
    """Yield the outages of a rank, the configured and the drawn ones, by their begin and without overlaps."""
    written = sorted((each.at, each.at + each.seconds) for each in settings.failures if each.rank == rank)
    intervals = heapq.merge(written, _drawn(settings, rank, seed))
    # Outages.delay adds up the intervals and would count an overlap twice.
    joined = next(intervals, NEVER)
    for begin, end in intervals:
        if begin <= joined[1]:
            joined = (joined[0], max(joined[1], end))
        else:
            yield joined
            joined = (begin, end)
    yield joined


def _drawn(settings: SimulationConfig, rank: int, seed: int) -> Iterator[Interval]:
    if settings.mtbf is None:
        return
    number, end = 0, 0.0
    while True:
        # Exponentially distributed durations by inverse transform; `uniform` never returns 0.
        begin = end - settings.mtbf * math.log(uniform(seed, "failure", rank, number))
        end = begin - settings.repair * math.log(uniform(seed, "repair", rank, number))
        number += 1
        yield begin, end


@dataclass(eq=False)
class SimProcess:
    """One simulated rank of the whole world."""

    number: int
    clock: float = 0.0
    # virtual time at which it was last resumed; all other processes have run up to this time
    resumed_at: float = 0.0
    waits_for: str = ""  # the awaited event while it is blocked, for the error message of a deadlock


class EventLoop:
    """Runs one program per process; `on_switch` is called before each resumption of a process."""

    def __init__(self, size: int, on_switch: Callable[[], None] = lambda: None) -> None:
        self.processes = [SimProcess(number) for number in range(size)]
        self._on_switch = on_switch
        self._greenlets: list[greenlet] = []
        self._ready: list[tuple[float, int]] = []

    def run(self, programs: list[Callable[[], None]]) -> None:
        """Run all programs to their end; the first exception ends all of them."""
        # greenlet raises the exception of a program here, in the parent, which ends the loop.
        self._greenlets = [greenlet(program) for program in programs]
        for process in self.processes:
            self.wake(process, 0.0)
        running = len(programs)
        while running:
            running -= self._step()

    def _step(self) -> bool:
        """Resume the earliest process; return True if it has ended."""
        if not self._ready:
            waits = (f"rank {p.number} waits for {p.waits_for}" for p in self.processes if p.waits_for)
            raise PeerLostError(f"deadlock between simulated ranks: {', '.join(waits)}")
        time, number = heapq.heappop(self._ready)
        # Wake-ups of a process may be left when it ends.
        if self._greenlets[number].dead:
            return False
        self.processes[number].resumed_at = time
        self._on_switch()
        self._greenlets[number].switch()
        return bool(self._greenlets[number].dead)

    def wake(self, process: SimProcess, time: float) -> None:
        """Resume `process` at `time`; the process itself checks whether its wait is over."""
        heapq.heappush(self._ready, (time, process.number))

    def block(self, process: SimProcess, what: str) -> None:
        """Run other processes until one of them wakes this process."""
        process.waits_for = what
        _hub().switch()
        process.waits_for = ""

    def yield_to_earlier(self, process: SimProcess) -> None:
        """Let every process with an earlier clock run first."""
        if not self._ready or self._ready[0] > (process.clock, process.number):
            process.resumed_at = process.clock
            return
        self.wake(process, process.clock)
        process.resumed_at = -1.0
        # An earlier wake-up, for example by a message, may resume the process before its clock.
        while process.resumed_at < process.clock:
            _hub().switch()


def _hub() -> greenlet:
    parent = getcurrent().parent
    assert parent is not None
    return parent
