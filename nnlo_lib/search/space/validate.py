"""Checks of a search before any training: its keys, the runs that its points give, objective and epochs.

Warnings are about valid settings that are probably a mistake.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from nnlo_lib.config import ConfigModel, Experiment, Run, block_types, merge_settings
from nnlo_lib.config.base import suggest_name
from nnlo_lib.config.metrics import metric_direction
from nnlo_lib.config.rules.key_names import similar_keys
from nnlo_lib.config.search import DirectedMetricConfig, GridSamplerConfig, PopulationConfig, SearchConfig
from nnlo_lib.config.space import DimensionConfig
from nnlo_lib.core.errors import UserError
from nnlo_lib.search.space.space import SearchSpace, count_distinct_points, count_trials, first_points, nested
from nnlo_lib.search.study.trial import SearchPoint

Key = tuple[str, ...]
Mistake = tuple[Key, str]
Refusals = Callable[[Any], Iterable[Mistake]]  # returns the mistakes in the settings of a run
Refused = Callable[
    [SearchPoint], list[Mistake]
]  # returns the mistakes of the base run with the values of a point
Space = Mapping[str, DimensionConfig]
VALIDATION_SAMPLES = 64  # random points that are checked besides the ends of all ranges

# Keys of `data` that are equal in all trials because the trials share one store.
SHARED_DATA_KEYS = ("dataset", "source", "reader", "format", "shard_size")
EXPERIMENT_ONLY_KEYS = frozenset(Experiment.model_fields) - frozenset(Run.model_fields)
COST_METRICS = ("seconds", "parameters")  # minimized
UNDIRECTED_METRICS = (
    "seconds", "samples_per_second", "bytes", "consensus_error", "consensus_error_normalised"
)  # fmt: skip
LOSS_COLUMN = re.compile(r"(train|val)_loss(_min|_max)?")
GAN_LOSS = "the loss of a GAN is the loss of its critic and does not measure the quality of the samples"
# Keys that a training may change when it resumes: its tensors, steps and samples stay the same.
RUNNING_KEYS = re.compile(
    r"train\.optimizer\.(?!name$|amsgrad|centered|epsilon_inside_root|initial).+|train\.(schedule|warm_up)\.(?!name$).+"
    r"|train\.clip_norm|data\.augment\..+|model\.args\.\w*drop\w*"
)
LOSS_SECTIONS = ("loss", "loss_weights", "problem")  # sections that define the loss


def find_search_mistakes(experiment: Experiment, refusals: Refusals) -> Iterator[Mistake]:
    """Yield each mistake in `search` with the key that it concerns."""
    search = experiment.search
    if search is None:
        return
    faults = {key: fault for key in search.space if (fault := reason_not_searchable(key))}
    yield from ((("search", "space", key), fault) for key, fault in faults.items())
    if not faults:
        yield from _space_mistakes(experiment, search, refusals)
    for place, objective in enumerate(search.objectives, -1):
        if error := find_objective_error(experiment, objective):
            yield ("search", "objective", *(("others", str(place)) if place >= 0 else ()), error[0]), error[1]
    yield from _epoch_mistakes(experiment, search)
    if isinstance(search.fidelity, PopulationConfig):
        yield from _population_mistakes(experiment, search, search.fidelity.population)


def reason_not_searchable(key: str) -> str | None:
    """Return the reason why a key cannot be searched, or None if it can."""
    first, *rest = key.split(".")
    if first in EXPERIMENT_ONLY_KEYS:
        return f"cannot be searched: '{first}' belongs to the experiment, not to the configuration of a trial"
    if first == "data" and rest[:1] and rest[0] in SHARED_DATA_KEYS:
        return "cannot be searched: all trials share one copy of the data"
    if is_known(key):
        return None
    close = similar_keys(key)
    hint = f"did you mean {' or '.join(close)}?" if close else "docs/reference/experiment.md lists all keys"
    return f"unknown key '{key}'; {hint}"


def is_known(key: str) -> bool:
    """Return True if a run may have this key; any key below a dictionary is accepted."""
    inside: list[type[ConfigModel]] = [Run]
    for part in key.split("."):
        annotations = [block.model_fields[part].annotation for block in inside if part in block.model_fields]
        if not annotations:
            return False
        if any("dict" in str(annotation) for annotation in annotations):
            return True
        inside = [block for annotation in annotations for block in block_types(annotation)]
    return True


def _space_mistakes(experiment: Experiment, search: SearchConfig, refusals: Refusals) -> Iterator[Mistake]:
    if not search.space:
        yield ("search", "space"), "no key to search; add keys, or set parameter_range on the model function"
        return
    try:
        space = SearchSpace(search.space)
    except UserError as error:
        yield ("search", "space"), str(error).removeprefix("search.space: ")
        return
    base = experiment.settings

    def refused(point: SearchPoint) -> list[Mistake]:
        return list(refusals(merge_settings(base, nested(point))))

    ends = [
        smallest_point(search.space, key, value)
        for key, each in search.space.items()
        for value in extremes(each)
    ]
    # A fixed seed, so that the same experiment gives the same messages.
    generator = np.random.default_rng(0)
    mistakes: dict[Key, str] = {}
    for point in [*ends, *(space.sample(generator) for _ in range(VALIDATION_SAMPLES))]:
        if found := refused(point):
            at, what = found[0]
            smaller = _reduced(search.space, refused, point, what)
            mistakes.setdefault(*_described(search.space, refused, smaller, ".".join(at), what))
    yield from mistakes.items()
    if not mistakes:
        from nnlo_lib.search.best import read_known  # imported here, because it imports this module

        try:
            first_points(experiment)
            _ = search.known and read_known(search)
        except UserError as error:
            key, _, what = str(error).partition(": ")
            yield (*key.split("."),), what


def smallest_point(space: Mapping[str, DimensionConfig], key: str, value: Any) -> SearchPoint:
    """Return the smallest point in which a key is active, by its `when` conditions, and has a value."""
    point = {key: value}
    for other, wanted in space[key].when.items():
        first = wanted[0] if isinstance(wanted, tuple) else wanted
        point |= smallest_point(space, other, first)
    return point


def extremes(dimension: DimensionConfig) -> tuple[Any, ...]:
    """Return both ends of a range, all values of a choice, or the constant."""
    if dimension.kind == "constant":
        return (dimension.constant,)
    return dimension.choice or dimension.bounds


def _reduced(space: Space, refused: Refused, point: SearchPoint, what: str) -> SearchPoint:
    """Return the refused point without the keys that do not contribute to the mistake."""
    for key in list(point):
        rest = {other: value for other, value in point.items() if other != key}
        # A key on which others depend stays: their conditions would refer to nothing.
        needed = any(key in space[other].when for other in rest)
        if not needed and what in (sentence for _, sentence in refused(rest)):
            point = rest
    return point


def _described(space: Space, refused: Refused, point: SearchPoint, blamed: str, what: str) -> Mistake:
    """Return the place of a mistake and a message that names the conflicting keys of a reduced point.

    The place is the searched key of the key `blamed` by the refusal, or the last key of the point.
    """
    key = next((key for key in reversed(point) if blamed.startswith(key)), ["", *point][-1])
    place = ("search", "space", key) if key else ("search",)
    others = {other: value for other, value in point.items() if other != key}
    name = f"{key.rpartition('.')[0]}.name"
    if what.startswith("unknown key") and name in space:
        # The searched names of the enclosing section that have the key.
        names = [
            str(value)
            for value in space[name].choice or ()
            if "unknown " not in str(refused({name: value, key: point[key]}))
        ]
        if names:
            return place, f"{what}; add the condition `when: {{{name}: [{', '.join(names)}]}}`"
    value = f"{point[key]!r}: " if point else ""
    if not others:
        return place, f"{value}{what}"
    together = " and ".join(f"{other} = {value}" for other, value in others.items())
    return place, f"{value}with {together}: {what}; remove one of these values, or add a `when` condition"


def find_objective_error(experiment: Experiment, objective: DirectedMetricConfig) -> tuple[str, str] | None:
    """Return the wrong key of an objective and the reason, or None if the objective is valid."""
    metric, search = objective.metric, experiment.search
    assert search is not None
    names = experiment.measured
    columns = [f"{split}_{name}" for split in ("train", "val") for name in names]
    spreads = [f"val_{name}_{end}" for name in names for end in ("min", "max")]
    if metric not in (*columns, *spreads, *UNDIRECTED_METRICS, *COST_METRICS):
        of_set = experiment.of_set_reason(metric.partition("_")[2])
        return "metric", f"'{metric}' is not measured{of_set or f'; {suggest_name(metric, columns)}'}"
    searched = "data.validation" in search.space
    if metric.startswith("val_") and not (experiment.data.validation or searched or search.folds.k > 1):
        return "metric", f"'{metric}' needs validation samples; set data.validation or search.folds.k"
    changing = [key for key in search.space if key.partition(".")[0] in LOSS_SECTIONS]
    is_gan = experiment.problem.name == "gan"
    if LOSS_COLUMN.fullmatch(metric) and (is_gan or changing):
        reason = GAN_LOSS if is_gan else f"{changing[0]} changes the definition of the loss"
        # columns[len(names)] is val_loss; the next ones are validation metrics.
        other = next(iter(columns[len(names) + 1 :]), "one of `metrics`")
        return "metric", f"{reason}, so {metric} cannot rank trials; set another metric, such as {other}"
    if objective.direction is None and metric not in COST_METRICS and metric_direction(metric) is None:
        return "direction", f"required for {metric}; set minimize or maximize"
    key = "train.restore_best"
    restored = extremes(search.space[key]) if key in search.space else (experiment.train.restore_best,)
    if search.objective.epoch == "last" and any(restored):
        what = "last judges the weights of the last epoch"
        return "epoch", f"{what}, but {key} publishes those of the best one; set epoch: best, or remove {key}"
    return None


def _epoch_mistakes(experiment: Experiment, search: SearchConfig) -> Iterator[Mistake]:
    """Yield mistakes about epochs: no rung below train.epochs, or train.epochs wrongly in the space."""
    epochs, fidelity = experiment.train.epochs, search.fidelity
    where = {"median": "grace", "pbt": "every"}.get(fidelity.name, "first")
    first = getattr(fidelity, where, 0)
    is_full, searched = fidelity.name == "full", search.space.get("train.epochs")
    if not is_full and first >= epochs:
        what = f"{fidelity.name} needs a rung below train.epochs ({epochs}); decrease this value, increase train.epochs, or set search.fidelity.name: full"
        yield ("search", "fidelity", where), what
    key = ("search", "space", "train.epochs")
    most = max(extremes(searched)) if searched and is_full else 0
    if searched and not is_full:
        what = f"{fidelity.name} sets the epochs of each trial; set search.fidelity.name: full"
        yield key, f"cannot be searched: {what}"
    elif most > epochs:
        yield (
            key,
            f"{most} exceeds train.epochs ({epochs}), the maximum of every trial; increase train.epochs",
        )


def _population_mistakes(experiment: Experiment, search: SearchConfig, population: int) -> Iterator[Mistake]:
    """Yield mistakes about population-based training: keys that a running training cannot change, a small space, early ends."""
    for key, dimension in search.space.items():
        values = extremes(dimension)
        is_new_buffer = key == "train.optimizer.momentum" and experiment.train.optimizer.name == "rmsprop"
        fits = RUNNING_KEYS.fullmatch(key) and not (is_new_buffer and 0 in values)
        if len(set(map(repr, values))) > 1 and not fits:
            what = "pbt changes keys of a running training, and this one changes its state, steps or samples"
            yield ("search", "space", key), f"cannot be searched: {what}; remove it, or set another fidelity"
    with suppress(UserError):  # a mistake of the space itself
        points = count_distinct_points(search)
        if points is not None and points < population:
            what = f"the space has only {points} points; set {points} or less"
            yield ("search", "fidelity", "population"), what
    for key in ("early_stopping", "target"):
        if getattr(experiment.train, key):
            yield ("train", key), "copies of a training that ended early cannot continue by pbt; remove it"


def search_warnings(experiment: Experiment) -> list[str]:
    """Return the warnings about the search of an experiment, which may have none."""
    search = experiment.search
    if search is None:
        return []
    left = unfinished_grid(search, count_trials(search))
    grid_warning = f"search.method: of the grid, {left}" if left else ""
    return list(filter(None, [_test_split_warning(experiment, search), grid_warning]))


def unfinished_grid(search: SearchConfig, trials: int) -> str:
    """Return how much of a grid a number of trials covers, as text; empty for all of it, and without a grid."""
    points = count_distinct_points(search)
    if not isinstance(search.method, GridSamplerConfig) or points is None or trials >= points:
        return ""
    return f"{trials} of {points:,} points are tried (search.trials: {search.trials}); remove search.trials to try all"


def _test_split_warning(experiment: Experiment, search: SearchConfig) -> str:
    """Return a warning if the test split selects the best trial, or else an empty string."""
    if search.folds.k > 1 or not any(each.metric.startswith("val_") for each in search.objectives):
        return ""
    searched = search.space.get("data.validation")
    if "test" not in (extremes(searched) if searched else (experiment.data.validation,)):
        return ""
    return (
        "data.validation: the test split selects the best trial, so the test result of this trial is optimistically "
        "biased; hold back training samples (data.validation: 0.1), or set search.folds.k"
    )
