"""The virtual machine of the simulator: times of computing and of messages, and outages of ranks."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import merge
from statistics import NormalDist
from time import perf_counter
from typing import Any

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
    """Messages of a collective call.

    Attributes:
        size: bytes that one rank sends in all rounds.
        messages: messages of all ranks in one round.
        rounds: number of rounds, one after the other.
    """

    size: int
    messages: int
    rounds: int = 1


class CostModel:
    """Ranks of unequal speed that straggle, fail and return, each with a network card of its own.

    All draws are pure functions of the seed, the rank, edge or group, and the number of earlier draws for it.
    The clock of a rank must not decrease from call to call. Times and durations are in virtual seconds, sizes
    in bytes.
    """

    def __init__(self, settings: SimulationConfig, size: int, seed: int) -> None:
        self._settings, self._seed = settings, seed
        self._speeds = settings.speed_of_ranks(size)
        self._stragglers = _stragglers(settings, size, seed)
        self._outages = [Outages(_intervals(settings, rank, seed)) for rank in range(size)]
        self._steps = [0] * size
        self._card_free = [0.0] * size
        self._last_arrival: dict[tuple[int, int], float] = {}
        self._resumed = perf_counter()

    def restart_stopwatch(self) -> None:
        """Start to measure the computing time of the rank that is resumed now."""
        self._resumed = perf_counter()

    def state(self, rank: int) -> dict[str, Any]:
        """Return what a rank saves: its steps, and the times at which its network card and edges are free."""
        arrivals = {to: time for (source, to), time in self._last_arrival.items() if source == rank}
        return {
            "steps": self._steps[rank],
            "card_free": self._card_free[rank],
            "arrivals": [*arrivals.items()],
        }

    def load_state(self, rank: int, state: dict[str, Any]) -> None:
        """Restore what `state` returned for the rank; its clock must not be earlier than before."""
        self._steps[rank], self._card_free[rank] = state["steps"], state["card_free"]
        self._last_arrival |= {(rank, to): time for to, time in state["arrivals"]}

    def compute_seconds(self, rank: int, samples: int, start: float) -> float:
        """Return the time that a rank takes for its next step, outages included, in virtual seconds.

        Args:
            rank: rank in the world.
            samples: number of samples of the step.
            start: clock of the rank at the begin of the step.
        """
        step = self._steps[rank]
        self._steps[rank] += 1
        work = (
            self._work(samples) / self._speeds[rank] * self._slowdown(rank, step) * self._jitter(rank, step)
        )
        return work + self._outages[rank].delay(start, work)

    def _work(self, samples: int) -> float:
        """Return the seconds on a rank of speed 1."""
        if self._settings.sample_seconds != "measured":
            return samples * self._settings.sample_seconds
        before = self._resumed
        self.restart_stopwatch()
        return self._resumed - before

    def _slowdown(self, rank: int, step: int) -> float:
        stragglers = self._settings.stragglers
        if rank not in self._stragglers:
            return 1.0
        straggles = (
            stragglers.probability == 1
            or uniform(self._seed, "straggle", rank, step) < stragglers.probability
        )
        return stragglers.slowdown if straggles else 1.0

    def _jitter(self, rank: int, step: int) -> float:
        """Return a log-normal factor of mean 1."""
        sigma = self._settings.jitter
        if not sigma:
            return 1.0
        return math.exp(
            sigma * NormalDist().inv_cdf(uniform(self._seed, "jitter", rank, step)) - sigma**2 / 2
        )

    def wake_time(self, rank: int, time: float) -> float:
        """Return when `rank` acts on an event at `time`: at once, or at the end of its outage."""
        return time + self._outages[rank].delay(time, 0.0)

    def arrival(self, source: int, to: int, size: int, sent: float, number: int) -> float:
        """Return when a message arrives; calls must be in the order in which `source` sends its messages.

        The message leaves after all earlier messages of `source` and never arrives before its predecessor on
        the edge.

        Args:
            source: sending rank in the world.
            to: receiving rank in the world.
            size: bytes.
            sent: clock of `source` when it sends.
            number: number of the message on its edge.
        """
        left = max(sent, self._card_free[source]) + size / self._settings.bandwidth
        self._card_free[source] = left
        delay = self._settings.retransmit * self._losses(1, "loss", source, to, number)
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

    def collective(self, call: CollectiveCost, group: int, number: int) -> float:
        """Return the duration of a collective call in virtual seconds; a round waits for its last message.

        Args:
            call: messages of the call.
            group: number of the communicator's group.
            number: number of the call in this group.
        """
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
    """Yield the outages of a rank, the configured and the drawn ones, by their begin and without overlaps.

    Args:
        settings: settings of the virtual machine.
        rank: rank in the world.
        seed: seed of the drawn outages.
    """
    written = sorted((each.at, each.at + each.seconds) for each in settings.failures if each.rank == rank)
    return _disjoint(merge(written, _drawn(settings, rank, seed)))


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


def _disjoint(intervals: Iterator[Interval]) -> Iterator[Interval]:
    """Join overlapping intervals; `intervals` are sorted by their begin."""
    # Outages.delay adds up the intervals and would count an overlap twice.
    joined = next(intervals, NEVER)
    for begin, end in intervals:
        if begin <= joined[1]:
            joined = (joined[0], max(joined[1], end))
        else:
            yield joined
            joined = (begin, end)
    yield joined


def _stragglers(settings: SimulationConfig, size: int, seed: int) -> frozenset[int]:
    """Return the stragglers: the configured ranks and a random fraction of all ranks.

    Args:
        settings: settings of the virtual machine.
        size: number of ranks.
        seed: seed of the draw.
    """
    shuffled = sorted(range(size), key=lambda rank: uniform(seed, "straggler", rank))
    return frozenset([*settings.stragglers.ranks, *shuffled[: round(settings.stragglers.fraction * size)]])
