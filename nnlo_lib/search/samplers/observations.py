"""The results so far in the form that sampling methods use."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from nnlo_lib.search.space.space import SearchSpace
from nnlo_lib.search.study.snapshot import StudySnapshot
from nnlo_lib.search.study.trial import SearchPoint


@dataclass(frozen=True)
class Observations:
    """Points of a search with and without values.

    Attributes:
        evaluated: points and their values; smaller is better.
        pending: points without a value.
        tried_keys: `point_key` of every trial's point.
    """

    evaluated: Sequence[tuple[SearchPoint, float]]
    pending: Sequence[SearchPoint]
    tried_keys: frozenset[str]


def point_key(point: SearchPoint) -> str:
    """Return a string that is equal for two points only if their values and types are equal."""
    return repr(sorted((key, repr(value)) for key, value in point.items()))


def observe(space: SearchSpace, known: StudySnapshot) -> Observations:
    """Return the points of all trials, with their values at the rung on which a model is based.

    A failed trial has the worst value at this rung: proposals then avoid its neighborhood, and the scale of
    the values does not change. Trials that have values only at lower rungs, and points that the space no
    longer contains, are omitted.
    """
    tried = frozenset(point_key(trial.point) for trial in known.trials)
    inside = [trial for trial in known.trials if trial.point in space]
    epochs = rung(known, len(space.free) + 2)
    values = {
        trial.number: math.inf if known.has_failed(trial.number) else known.mean_value(trial.number, epochs)
        for trial in inside
    }
    worst = max((each for each in values.values() if each is not None and math.isfinite(each)), default=None)
    evaluated = [
        # A failed trial has an infinite value, which no model can be fitted to.
        (trial.point, min(value, worst))
        for trial in inside
        if (value := values[trial.number]) is not None and worst is not None
    ]
    pending = [trial.point for trial in inside if known.final_value(trial.number) is None]
    return Observations(evaluated, pending, tried)


def rung(known: StudySnapshot, enough: int) -> int:
    """Return the highest rung with `enough` values, or else the rung with most (Falkner et al. 2018)."""
    counts: dict[int, int] = {}
    for trial in known.trials:
        for epochs in known.rungs(trial.number):
            value = known.mean_value(trial.number, epochs)
            counts[epochs] = counts.get(epochs, 0) + (value is not None and math.isfinite(value))
    return max(counts, key=lambda epochs: (min(counts[epochs], enough), epochs), default=known.epochs)
