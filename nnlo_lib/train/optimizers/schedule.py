"""The learning rate of each round: pure functions of where a training is and what it measured."""

from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache
from math import cos, inf, pi
from typing import Literal, NamedTuple

from nnlo_lib import config
from nnlo_lib.state.history import Row


class Place(NamedTuple):
    """Where a training is: the first step of its round, counted from 0, and how many there are of each."""

    step: int
    steps_per_epoch: int
    round: int
    rounds: int

    @property
    def done(self) -> float:
        """Fraction of the rounds that are behind, 1 in the last and after it."""
        return min(1.0, self.round / max(1, self.rounds - 1))

    def passed(self, unit: Literal["epochs", "steps"]) -> float:
        """Return how many epochs or steps are behind."""
        return self.step / self.steps_per_epoch if unit == "epochs" else self.step


def learning_rate(schedule: config.Schedule, start: float, at: Place, falls: int = 0) -> float:
    """Return the rate of a round; a plateau schedule has fallen `falls` times."""
    match schedule:
        case config.Constant():
            return start
        case config.Linear():
            return start + at.done * (schedule.final - start)
        case config.Log():
            return float(start * (schedule.final / start) ** at.done)
        case config.Diminishing():
            return _diminished(start, schedule.mu, at.round)
        case config.Step():
            return float(start * schedule.factor ** (at.passed(schedule.unit) // schedule.every))
        case config.MultiStep():
            return float(
                start * schedule.factor ** bisect_right(schedule.milestones, at.passed(schedule.unit))
            )
        case config.ExponentialDecay():
            return float(start * schedule.factor ** int(at.passed(schedule.unit)))
        case config.Cosine():
            return _half_cosine(start, schedule.final, _phase(schedule, at))
        case config.Polynomial():
            return float(schedule.final + (start - schedule.final) * (1 - at.done) ** schedule.power)
        case config.OneCycle():
            return start * _cycle(schedule, at)
        case config.Plateau():
            return _fallen(schedule, start, falls)


@lru_cache(maxsize=64)
def _diminished(start: float, mu: float, round: int) -> float:
    rate = start
    for _ in range(round):
        rate *= 1 - mu * rate
    return rate


def _half_cosine(start: float, end: float, phase: float) -> float:
    """Go from start to end while phase goes from 0 to 1."""
    return end + (start - end) * (1 + cos(pi * phase)) / 2


def _phase(schedule: config.Cosine, at: Place) -> float:
    """Return how far the current period has come; the training is the only one if none restarts."""
    if schedule.restart is None:
        return at.done
    passed, period = at.passed(schedule.unit), schedule.restart
    if schedule.stretch == 1:
        return passed % period / period
    while passed >= period:
        passed, period = passed - period, period * schedule.stretch
    return passed / period


def _cycle(schedule: config.OneCycle, at: Place) -> float:
    peak = max(0.0, schedule.rise * at.rounds - 1)
    if at.round < peak:
        return _half_cosine(schedule.start, 1, at.round / peak)
    return _half_cosine(1, schedule.final, min(1.0, (at.round - peak) / max(1, at.rounds - 1 - peak)))


def _fallen(schedule: config.Plateau, start: float, falls: int) -> float:
    rate, least = start, min(start, schedule.min_lr)
    for _ in range(falls):
        rate = max(rate * schedule.factor, least)
    return rate


def falls(schedule: config.Plateau, rows: Sequence[Row]) -> int:
    """Return how often the rate has fallen after these rows of the history, one an epoch."""
    sign = -1.0 if schedule.wants_larger else 1.0
    best, waited, cooling, count = inf, 0, 0, 0
    for value in (sign * float(row[schedule.metric]) for row in rows):
        better = value < best - schedule.min_delta
        best = value if better else best
        waited = 0 if better or cooling else waited + 1
        cooling = max(0, cooling - 1)
        if waited >= schedule.patience:
            waited, cooling, count = 0, schedule.cooldown, count + 1
    return count
