"""Validation of a search before any training."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from nnlo_lib.config import Experiment, merge_settings
from nnlo_lib.config.search import SearchConfig
from nnlo_lib.config.space import DimensionConfig
from nnlo_lib.core.errors import UserError
from nnlo_lib.search.space import searchable_keys as keys
from nnlo_lib.search.space.infeasible import InfeasiblePoints
from nnlo_lib.search.space.space import nested
from nnlo_lib.search.study.objective_check import find_objective_error
from nnlo_lib.search.study.trial import SearchPoint

Key = tuple[str, ...]
Mistake = tuple[Key, str]
Refusals = Callable[[Any], Iterable[Mistake]]  # returns the mistakes in the settings of a run
VALIDATION_SAMPLES = 64


def find_search_mistakes(experiment: Experiment, refusals: Refusals) -> Iterator[Mistake]:
    """Yield each mistake in `search` with the key that it concerns."""
    search = experiment.search
    if search is None:
        return
    faults = {key: fault for key in search.space if (fault := keys.reason_not_searchable(key))}
    yield from ((("search", "space", key), fault) for key, fault in faults.items())
    if not faults:
        yield from _space_mistakes(experiment, search, refusals)
    if error := find_objective_error(experiment, search.objective):
        yield ("search", "objective", error[0]), error[1]
    yield from _epoch_mistakes(experiment, search)


def _epoch_mistakes(experiment: Experiment, search: SearchConfig) -> Iterator[Mistake]:
    """Yield mistakes about epochs: no rung below train.epochs, or train.epochs wrongly in the space."""
    epochs, fidelity = experiment.train.epochs, search.fidelity
    first = getattr(fidelity, "first", getattr(fidelity, "grace", 0))
    if fidelity.name != "full" and first >= epochs:
        where = "grace" if fidelity.name == "median" else "first"
        what = f"{fidelity.name} needs a rung below train.epochs ({epochs}); decrease this value, increase train.epochs, or set search.fidelity.name: full"
        yield ("search", "fidelity", where), what
    searched = search.space.get("train.epochs")
    if searched and fidelity.name != "full":
        yield (
            ("search", "space", "train.epochs"),
            f"cannot be searched: {fidelity.name} sets the epochs of each trial; set search.fidelity.name: full",
        )
    elif searched and max(extremes(searched)) > epochs:
        what = f"{max(extremes(searched))} exceeds train.epochs ({epochs}), the maximum of every trial; increase train.epochs"
        yield ("search", "space", "train.epochs"), what


def _space_mistakes(experiment: Experiment, search: SearchConfig, refusals: Refusals) -> Iterator[Mistake]:
    import numpy as np

    from nnlo_lib.search.space.space import SearchSpace

    if not search.space:
        yield ("search", "space"), "no key to search; add keys, or set parameter_range on the model function"
        return
    try:
        space = SearchSpace(search.space)
    except UserError as error:
        yield ("search", "space"), str(error).removeprefix("search.space: ")
        return
    base = experiment.settings
    infeasible = InfeasiblePoints(
        search.space, lambda point: list(refusals(merge_settings(base, nested(point))))
    )
    ends = [
        _ending(search.space, key, value) for key in search.space for value in extremes(search.space[key])
    ]
    # A fixed seed, so that the same experiment gives the same messages.
    generator = np.random.default_rng(0)
    yield from infeasible.find_mistakes(
        [*ends, *(space.sample(generator) for _ in range(VALIDATION_SAMPLES))]
    )


def extremes(dimension: DimensionConfig) -> tuple[Any, ...]:
    """Return both ends of a range, all values of a choice, or the constant."""
    if dimension.kind == "constant":
        return (dimension.constant,)
    return dimension.choice or dimension.bounds


def _ending(space: Mapping[str, DimensionConfig], key: str, value: Any) -> SearchPoint:
    """Return the smallest point in which a key is active, by its `when` conditions, and has a value.

    Args:
        space: dimension of each searched key.
        key: the key.
        value: its value.
    """
    point = {key: value}
    for other, wanted in space[key].when.items():
        first = wanted[0] if isinstance(wanted, tuple) else wanted
        point |= _ending(space, other, first)
    return point
