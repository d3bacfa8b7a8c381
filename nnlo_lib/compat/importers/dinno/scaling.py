"""DiNNO's scaling study: one run for each number of nodes, or for each algebraic connectivity of the graph."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from nnlo_lib.compat.importers.dinno.keys import check_keys, number
from nnlo_lib.core.errors import UserError

KEYS = {"const", "min_N", "max_N", "target_fied", "min_fied", "max_fied", "num_nodes", "num_trials"}
REQUIRED = {
    "fiedler": ("min_N", "max_N", "target_fied", "num_trials"),
    "num_nodes": ("num_nodes", "min_fied", "max_fied", "num_trials"),
}


@dataclass(frozen=True)
class ScalingTrial:
    """One run of the sweep.

    Attributes:
        name: name of the run.
        nodes: number of nodes.
        connectivity: algebraic connectivity (Fiedler value) of the graph.
    """

    name: str
    nodes: int
    connectivity: float


def scaling_trials(scaling: Mapping[str, Any], where: str) -> list[ScalingTrial]:
    """Return the trials of a sweep, whose values have equal distances.

    Args:
        scaling: section `experiment.scaling`.
        where: name of the section in error messages.

    Raises:
        UserError: if a key is unknown, missing, or not valid.
    """
    check_keys(scaling, KEYS, where)
    const = scaling.get("const")
    if const not in REQUIRED:
        raise UserError(f"{where}: const: expected fiedler or num_nodes, got {const!r}")
    if missing := [key for key in REQUIRED[const] if key not in scaling]:
        raise UserError(f"{where}: the key {missing[0]} is missing; a sweep with const {const} requires it")
    count = int(number(scaling, "num_trials", 1))
    if const == "fiedler":
        ends = int(number(scaling, "min_N", 1)), int(number(scaling, "max_N", 1))
        fixed = float(number(scaling, "target_fied", 1.0))
        trials = [ScalingTrial(f"nodes-{int(value)}", int(value), fixed) for value in _spaced(*ends, count)]
    else:
        nodes = int(number(scaling, "num_nodes", 1))
        bounds = float(number(scaling, "min_fied", 1.0)), float(number(scaling, "max_fied", 1.0))
        values = [round(value, 6) for value in _spaced(*bounds, count)]
        trials = [ScalingTrial(f"fiedler-{value:g}".replace(".", "_"), nodes, value) for value in values]
    return list(dict.fromkeys(trials))


def _spaced(first: float, last: float, count: int) -> Iterator[float]:
    for index in range(count):
        yield first + (last - first) * index / max(1, count - 1)
