"""Conditions of searched keys: a key is active only if other searched keys have certain values."""

from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter

from nnlo_lib.config.base import suggest_name
from nnlo_lib.config.space import DimensionConfig, Scalar
from nnlo_lib.core.errors import UserError
from nnlo_lib.search.space.scales import Choice, Integer, Scale

Conditions = dict[str, dict[str, frozenset[int]]]  # key -> other key -> positions of the activating values


def conditions(dimensions: Mapping[str, DimensionConfig], scales: Mapping[str, Scale]) -> Conditions:
    """Return the `when` conditions of all keys. Raises UserError if a condition can never hold."""
    found: Conditions = {}
    for key, dimension in dimensions.items():
        found[key] = {}
        for other, wanted in dimension.when.items():
            if other not in scales:
                raise UserError(_at(key, other) + f"is not searched; {suggest_name(other, scales)}")
            values = wanted if isinstance(wanted, tuple) else (wanted,)
            found[key][other] = frozenset(_rank(key, other, value, scales[other]) for value in values)
    return found


def in_order(found: Conditions) -> list[str]:
    """Return all keys, each after the keys that it depends on. Raises UserError if there is a cycle."""
    try:
        # Sorted, so that the order of the keys in a `when` condition has no effect.
        return list(TopologicalSorter({key: sorted(others) for key, others in found.items()}).static_order())
    except CycleError as error:
        cycle = " -> ".join(error.args[1])
        raise UserError(
            f"search.space: the `when` conditions form a cycle: {cycle}; remove one of them"
        ) from None


def _rank(key: str, other: str, value: Scalar, scale: Scale) -> int:
    if not isinstance(scale, Integer | Choice):
        raise UserError(
            _at(key, other) + "is a range of real numbers; use `choice`, `integer` or `log_integer` for it"
        )
    rank = scale.rank(value)
    if rank is None:
        known = (
            f"use a value from {scale.low} to {scale.high}"
            if isinstance(scale, Integer)
            else suggest_name(str(value), map(str, scale.values))
        )
        raise UserError(_at(key, other) + f"cannot have the value {value!r}; {known}")
    return rank


def _at(key: str, other: str) -> str:
    return f"search.space: '{key}' has a `when` condition on '{other}', but '{other}' "
