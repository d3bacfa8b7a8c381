"""Searched keys without an effect: by the settings of two trials before a search, by the values of its trials after it.

The check of an experiment also compares the networks of the two trials (preflight), which needs torch.
"""

import json
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from nnlo_lib.config import Experiment, Run, merge_settings
from nnlo_lib.config.base import EditEffect, keys_with, non_defaults
from nnlo_lib.config.rules.combinations import unused_settings
from nnlo_lib.config.space import DimensionConfig
from nnlo_lib.search.space.space import nested
from nnlo_lib.search.space.validate import UNDIRECTED_METRICS, extremes, smallest_point
from nnlo_lib.search.study.trial import SearchPoint
from nnlo_lib.search.study.trial_summary import TrialSummary

ALGORITHM_KEY = "algorithm.name"
EQUAL_TRIALS = 3  # fewer can have the same accuracy by chance


def end_points(space: Mapping[str, DimensionConfig], key: str) -> list[SearchPoint]:
    """Return two points that differ only in the first and the last value of a key; none if it has a single value."""
    values = extremes(space[key])
    distinct = len(set(map(repr, values))) > 1
    return [smallest_point(space, key, values[end]) for end in (0, -1)] if distinct else []


def unused_reason(experiment: Experiment, key: str) -> str:
    """Return the reason why no algorithm of a search uses a searched key, or an empty string."""
    assert experiment.search is not None
    space, reason = experiment.search.space, ""
    algorithms = (
        [{ALGORITHM_KEY: name} for name in extremes(space[ALGORITHM_KEY])] if ALGORITHM_KEY in space else [{}]
    )
    for algorithm in algorithms:
        points = [algorithm | smallest_point(space, key, value) for value in extremes(space[key])]
        faults = [fault for run in _valid_runs(experiment.settings, points) for fault in unused_settings(run)]
        # A section that has its default value is no fault, but no value of a section that is ignored has an effect.
        split = (fault.partition(": ") for fault in faults)
        reason = next((what for ignored, _, what in split if key.startswith(ignored)), "")
        if not reason:
            break
    return reason


def same_training(experiment: Experiment, key: str) -> bool:
    """Return True if trials that differ only in a searched key train alike, so that only their times can differ."""
    assert experiment.search is not None
    if any(each.metric in UNDIRECTED_METRICS for each in experiment.search.objectives):
        return False
    runs = _valid_runs(experiment.settings, end_points(experiment.search.space, key))
    free = keys_with(Run, EditEffect.NEXT_ATTEMPT, EditEffect.SAME_DATA)
    trained = [non_defaults(run.with_defaults_for(*free)) for run in runs]
    return len(trained) == 2 and trained[0] == trained[1]


def _valid_runs(settings: Mapping[str, Any], points: Sequence[SearchPoint]) -> Iterator[Run]:
    """Yield the runs of points; a point that gives no valid run is another check's mistake."""
    for point in points:
        try:
            yield Run.model_validate(merge_settings(settings, nested(point)))
        except ValidationError:
            continue


def question_of_effect(rows: Sequence[TrialSummary]) -> str:
    """Return a question on keys whose trials have the same values to the last bit; an empty string if there are none."""
    values = {
        json.dumps(row.point, sort_keys=True): (row.epochs, row.folds)
        for row in rows
        if math.isfinite(row.objective)
    }
    points = [json.loads(text) for text in values]
    names = sorted({key for point in points for key in point})
    if len(set(values.values())) > 1:
        names = [key for key in names if _is_equal_along(key, points, list(values.values()))]
    if len(points) < EQUAL_TRIALS or not names:
        return ""
    same = (
        f"{len(points)} points have the same value"
        if len(set(values.values())) == 1
        else ("points that differ in one key have the same value")
    )
    return f"{same}: {', '.join(names)} may have no effect; is a name misspelt?"


def _is_equal_along(key: str, points: Sequence[SearchPoint], values: Sequence[Any]) -> bool:
    """Return True if all points that differ only in a key have the same value, and there are enough of them."""
    groups = defaultdict(list)
    for point, value in zip(points, values, strict=True):
        if key in point:
            rest = {name: each for name, each in point.items() if name != key}
            groups[json.dumps(rest)].append(value)
    return sum(len(group) - 1 for group in groups.values()) >= EQUAL_TRIALS - 1 and all(
        len(set(group)) == 1 for group in groups.values()
    )
