"""Population-based training (Jaderberg et al. 2017, arXiv:1711.09846): bad trials are replaced by changed copies of good ones.

A member of the population continues as soon as enough worse members have reached its rung; those that may be among the
worst wait for all. So points and weights depend on neither the order of arrival nor the number of workers; only the numbers
of the trials do. Members are compared by their last epoch, whatever epoch of the objective counts.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from nnlo_lib.search.pruners import Pruner, TrialSampler
from nnlo_lib.search.samplers.base import sampling_rng
from nnlo_lib.search.space.scales import Choice, Integer, Real
from nnlo_lib.search.space.space import SearchSpace
from nnlo_lib.search.study.snapshot import StudySnapshot, latest
from nnlo_lib.search.study.trial import Parent, SearchPoint, Trial


class _Member(NamedTuple):
    """A trial that is decided at a rung; `parents`: trials that may replace it, none if it continues."""

    trial: int
    place: int  # the first member whose place in the population it has
    rung: int
    parents: Sequence[int]


@dataclass(frozen=True)
class PopulationPruner(Pruner):
    """Promotes the members of a population that it does not replace; `search.fidelity` describes the fields."""

    population: int
    every: int
    quantile: float
    factors: Sequence[float]
    resample: float

    def rungs(self, trial: int, epochs: int) -> tuple[int, ...]:
        """Return the epochs at which members are compared, and `epochs`."""
        return (*range(self.every, epochs, self.every), epochs)

    def promote(self, known: StudySnapshot) -> tuple[int, int] | None:
        """Return the next member, if it continues; None if it is replaced, or if the population is incomplete."""
        member = self._next(known)
        if member is None or member.parents:
            return None
        return member.trial, next(above for above in self.rungs(0, known.epochs) if above > member.rung)

    def unfinished(self, known: StudySnapshot) -> set[int]:
        """Return all members that are neither replaced nor fully trained."""
        replaced = {trial.parent.replaces for trial in known.trials if trial.parent}
        left = {trial.number for trial in known.trials if known.top(trial.number) < known.epochs}
        return left - replaced

    def new_trial(self, known: StudySnapshot, propose: TrialSampler) -> Trial | None:
        """Return a first member, whose point the sampler proposes, or the trial that replaces the next member."""
        number = len(known.trials)
        if number < self.population:
            return super().new_trial(known, propose)
        member = self._next(known)
        if member is None or not member.parents:
            return None
        # Not by the number of the trial, which depends on the order of arrival.
        random = sampling_rng(known.search.seed, "pbt", member.rung, member.place)
        parent = int(random.choice(member.parents))
        space, point = SearchSpace(known.search.space), known.trials[parent].point
        changed = perturbed(space, point, random, self.factors, self.resample)
        return Trial(number, changed, parent=Parent(parent, member.rung, member.trial))

    def _next(self, known: StudySnapshot) -> _Member | None:
        """Return the first member that can be decided; None if all wait for results, have ended, or are still missing."""
        if len(known.trials) < self.population:
            return None
        replaced = {trial.parent.replaces for trial in known.trials if trial.parent}
        # The first member whose place a trial has, so that equal values have an order that no arrival changes.
        places: list[int] = []
        for trial in known.trials:
            places.append(places[trial.parent.replaces] if trial.parent else trial.number)
        count = max(1, int(self.quantile * self.population))
        for rung in self.rungs(0, known.epochs)[:-1]:
            values = _values(known, rung)
            ranked = sorted(values, key=lambda each: (values[each], places[each]))
            parents = [each for each in ranked[:count] if math.isfinite(values[each])]
            for number in sorted(values.keys() - replaced, key=lambda each: places[each]):
                if known.top(number) > rung:
                    continue
                if math.isfinite(values[number]) and number in ranked[: max(0, len(ranked) - count)]:
                    return _Member(number, places[number], rung, ())
                if parents and len(ranked) == self.population:
                    return _Member(number, places[number], rung, parents)
        return None


def _values(known: StudySnapshot, rung: int) -> dict[int, float]:
    """Return the values of the last epoch of the trials that have ended at a rung; infinite for failures."""
    found = {}
    for trial in known.trials:
        if known.mean_value(trial.number, rung) == math.inf:
            found[trial.number] = math.inf
        elif known.is_complete(trial.number, rung):
            found[trial.number] = known.mean_value(trial.number, rung, latest) or 0.0
    return found


def perturbed(
    space: SearchSpace, point: SearchPoint, random: np.random.Generator, factors: Sequence[float], resample: float
) -> SearchPoint:  # fmt: skip
    """Return a changed point of the space.

    Each key is drawn again with probability `resample`, and if `point` does not have it. Otherwise a number is multiplied by
    one of `factors`, within its range, an integer by at least 1; a choice becomes its neighbor in the list.
    """
    values: SearchPoint = {}
    for key, scale in space.scales.items():
        # As many numbers for each key, so that a key does not change the stream of the next ones.
        chance, place, which = random.random(3)
        factor = factors[int(which * len(factors))]
        step = 1 if factor > 1 else -1
        if key not in point or chance < resample:
            values[key] = scale.value_at(place)
        elif isinstance(scale, Choice):
            rank = (scale.rank(point[key]) or 0) + step
            values[key] = scale.values[min(max(rank, 0), scale.count - 1)]
        elif isinstance(scale, Integer):
            moved = round(point[key] * factor)
            moved += step * (moved == point[key])
            values[key] = min(max(moved, scale.low), scale.high)
        else:
            assert isinstance(scale, Real)
            values[key] = min(max(point[key] * factor, scale.low), scale.high)
    return space.drop_inactive(values)
