"""Comparison of recorded numbers with the numbers that follow from other files."""

import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from nnlo_lib.reliability.verify.finding import Finding, failed, ok

ROUNDING = 1e-9  # relative; covers another order of the same additions


class Comparison(NamedTuple):
    """A recorded value, and the value that another source gives.

    Attributes:
        key: key in the file.
        recorded: value in the file.
        expected: value from the source.
        source: the source, as text.
    """

    key: str
    recorded: Any
    expected: Any
    source: str


def check_comparisons(file: str, comparisons: Iterable[Comparison]) -> Iterator[Finding]:
    """Yield a finding for each value that differs, or one for all if none differs.

    Args:
        file: name of the file, for the message.
        comparisons: at least one comparison.
    """
    made = list(comparisons)
    differing = [each for each in made if not agree(each.recorded, each.expected)]
    for each in differing:
        yield failed(f"{file}: {each.key} is {each.recorded}, but {each.source} gives {each.expected}")
    if not differing:
        sources = ", ".join(dict.fromkeys(each.source for each in made))
        yield ok(f"{file}: {len(made)} values agree with {sources}")


def agree(recorded: Any, expected: Any, tolerance: float = ROUNDING) -> bool:
    """Return True if two JSON values are equal; NaN equals NaN.

    Args:
        recorded: value in a file.
        expected: value from another source.
        tolerance: largest relative difference of numbers.
    """
    if isinstance(recorded, dict) and isinstance(expected, dict):
        pairs = [(recorded.get(key), expected.get(key)) for key in {**recorded, **expected}]
        return all(agree(*pair, tolerance) for pair in pairs)
    if isinstance(recorded, list) and isinstance(expected, list):
        return len(recorded) == len(expected) and all(
            agree(*pair, tolerance) for pair in zip(recorded, expected, strict=True)
        )
    if isinstance(recorded, int | float) and isinstance(expected, int | float):
        both_nan = math.isnan(recorded) and math.isnan(expected)
        return both_nan or math.isclose(recorded, expected, rel_tol=tolerance)
    return bool(recorded == expected)
