"""The searched keys as numbers, and the axis of each."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nnlo_lib.config.space import DimensionConfig
from nnlo_lib.report.charts import axis
from nnlo_lib.report.charts.axis import Axis
from nnlo_lib.report.search.study_data import StudyData
from nnlo_lib.search.study.plain_text import format_value
from nnlo_lib.search.study.trial_summary import TrialSummary


@dataclass(frozen=True)
class SearchedParameter:
    """A searched key.

    Attributes:
        name: dotted path of the key.
        dimension: its entry in the search space.
        choices: the values of the trials, in the order of the file; empty for a numeric key without `choice`.
    """

    name: str
    dimension: DimensionConfig
    choices: tuple[Any, ...]

    @property
    def short_name(self) -> str:
        """The last two parts of the key's path."""
        return ".".join(self.name.split(".")[-2:])

    def to_number(self, value: Any) -> float:
        """Return a value as a number: its index in `choices`, or the value itself if there are no choices."""
        # Compared by repr, because True == 1 == 1.0 in Python, but they are different choices.
        return float([*map(repr, self.choices)].index(repr(value))) if self.choices else float(value)

    def axis(self, numbers: Sequence[float], start: float, end: float) -> Axis:
        """Return an axis for values of the key.

        Args:
            numbers: the values as numbers (see `to_number`); not used if the key has choices.
            start: position of the lower end, in drawing units.
            end: position of the upper end, in drawing units.
        """
        if self.choices:
            return axis.categorical([format_value(value) for value in self.choices], start, end)
        make_axis = axis.logarithmic if self.dimension.kind.startswith("log") else axis.linear
        return make_axis(numbers, start, end)


def searched_parameters(data: StudyData, rows: Sequence[TrialSummary]) -> list[SearchedParameter]:
    """Return the keys that have at least two different values in `rows`."""
    found = []
    for name, dimension in data.study.search.space.items():
        values = [row.point[name] for row in rows if name in row.point]
        listed = () if all(map(_is_number, values)) and not dimension.choice else _in_order(dimension, values)
        if len(set(map(repr, values))) > 1:
            found.append(SearchedParameter(name, dimension, listed))
    return found


def _in_order(dimension: DimensionConfig, values: Sequence[Any]) -> tuple[Any, ...]:
    """Return the distinct values: listed choices in the order of the file, then the others."""
    present = {repr(value): value for value in values}
    listed = {repr(value): value for value in dimension.choice or () if repr(value) in present}
    return tuple((listed | present).values())


def _is_number(value: Any) -> bool:
    # bool is a subclass of int.
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
