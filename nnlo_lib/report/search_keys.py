"""The searched keys as columns of numbers, and the axis that each is drawn on."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nnlo_lib.config import Dimension
from nnlo_lib.report import axis
from nnlo_lib.report.axis import Axis
from nnlo_lib.report.search_data import SearchData
from nnlo_lib.search.row import Row
from nnlo_lib.search.words import shown


@dataclass(frozen=True)
class SearchedKey:
    """A key and its values that occur, in order; a value's number is its place among listed ones, else itself."""

    name: str
    dimension: Dimension
    listed: tuple[Any, ...]

    @property
    def short(self) -> str:
        """Return the last two parts of its path."""
        return ".".join(self.name.split(".")[-2:])

    def number(self, value: Any) -> float:
        """Return the number of a value."""
        return float([*map(repr, self.listed)].index(repr(value))) if self.listed else float(value)

    def axis(self, numbers: Sequence[float], start: float, end: float) -> Axis:
        """Return an axis for values that occur, given by their numbers."""
        if self.listed:
            return axis.listed([shown(value) for value in self.listed], start, end)
        lay = axis.logarithmic if self.dimension.kind.startswith("log") else axis.linear
        return lay(numbers, start, end)


def searched_keys(data: SearchData, rows: Sequence[Row]) -> list[SearchedKey]:
    """Return the keys that differ between some trials."""
    found = []
    for name, dimension in data.record.search.space.items():
        values = [row.point[name] for row in rows if name in row.point]
        listed = () if all(map(_is_number, values)) and not dimension.choice else _in_order(dimension, values)
        if len(set(map(repr, values))) > 1:
            found.append(SearchedKey(name, dimension, listed))
    return found


def _in_order(dimension: Dimension, values: Sequence[Any]) -> tuple[Any, ...]:
    """Return what occurs, in the order of the file."""
    there = {repr(value): value for value in values}
    given = {repr(value): value for value in dimension.choice or () if repr(value) in there}
    return tuple((given | there).values())


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
