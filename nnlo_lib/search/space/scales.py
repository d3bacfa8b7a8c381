"""Scales of searched keys, which map values to the unit interval, and spaces in scikit-optimize's form.

A range maps linearly or by logarithm, a list in equal cells.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeGuard

import numpy as np
from numpy.typing import NDArray
from pydantic import JsonValue

from nnlo_lib.config.base import suggest_name
from nnlo_lib.config.model import ModelConfig
from nnlo_lib.config.space import DimensionConfig
from nnlo_lib.core.errors import USER_CODE_ERRORS, UserError
from nnlo_lib.core.user_code import error_with_source_line, load_implementation, split_function_reference

Array = NDArray[np.float64]
ATTRIBUTE = "parameter_range"  # attribute of NNLO's model functions


class Scale(Protocol):
    """The values of one key, mapped to the unit interval: their number, and the number of coordinates of each for a model."""

    @property
    def count(self) -> float: ...
    @property
    def width(self) -> int: ...

    def value_at(self, quantile: float) -> JsonValue:
        """Return the value at a position in the unit interval."""

    def quantile_of(self, value: JsonValue) -> float:
        """Return the position of a value in the unit interval; NaN if the key cannot have this value."""

    def coordinates(self, quantiles: Array) -> Array:
        """Return (n, width) coordinates in [0, 1] for a model; NaN stays NaN."""

    def levels(self, most: int | None) -> Sequence[JsonValue]:
        """Return the values for a grid: all values of a list; at most `most` of a range, both ends included.

        If `most` is None, return every value. Raises ValueError if their number is infinite.
        """


@dataclass(frozen=True)
class Real:
    """Real numbers of a range."""

    low: float
    high: float
    log: bool
    count: float = math.inf
    width: int = 1

    def value_at(self, quantile: float) -> float:
        if self.log:
            value = self.low * (self.high / self.low) ** quantile
        else:
            value = self.low + quantile * (self.high - self.low)
        # Rounding in the power may leave the range by the last bit.
        return float(min(max(value, self.low), self.high))

    def quantile_of(self, value: JsonValue) -> float:
        if not _is_number(value) or not self.low <= value <= self.high:
            return math.nan
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def coordinates(self, quantiles: Array) -> Array:
        return quantiles[:, None]

    def levels(self, most: int | None) -> list[float]:
        if most is None:
            raise ValueError("a range of real numbers has infinitely many values")
        return [self.value_at(each) for each in np.linspace(0, 1, most)]


@dataclass(frozen=True)
class Integer:
    """Integers of a range, both ends included: k occupies the interval from k to k + 1."""

    low: int
    high: int
    log: bool
    width: int = 1

    @property
    def count(self) -> int:
        return self.high - self.low + 1

    def value_at(self, quantile: float) -> int:
        return self.low + int(self.ranks(np.array([quantile]))[0])

    def ranks(self, quantiles: Array) -> Array:
        """Return the number of smaller values for each position in the unit interval."""
        if self.log:
            # 1e-9 makes up for rounding: the power at the lower end of a cell may be 7.999... instead of 8.
            values = np.floor(self.low * ((self.high + 1) / self.low) ** quantiles + 1e-9)
        else:
            values = np.floor(self.low + quantiles * self.count)
        return np.clip(values, self.low, self.high) - self.low

    def rank(self, value: JsonValue) -> int | None:
        """Return the number of smaller values; None if the range does not contain the value."""
        if not _is_number(value) or not self.low <= value <= self.high or value != int(value):
            return None
        return int(value) - self.low

    def quantile_of(self, value: JsonValue) -> float:
        rank = self.rank(value)
        return math.nan if rank is None else float(self._middles(np.array([float(rank)]))[0])

    def coordinates(self, quantiles: Array) -> Array:
        return self._middles(self.ranks(quantiles))[:, None]

    def levels(self, most: int | None) -> Sequence[int]:
        if most is None or most >= self.count:
            return range(self.low, self.high + 1)
        spaced = np.geomspace if self.log else np.linspace
        return sorted({round(each) for each in spaced(self.low, self.high, most)})

    def _middles(self, ranks: Array) -> Array:
        if self.log:
            # The middle of the cell from k to k + 1 on a logarithmic scale is their geometric mean.
            values = self.low + ranks
            return np.log(np.sqrt(values * (values + 1)) / self.low) / math.log((self.high + 1) / self.low)
        return (ranks + 0.5) / self.count


@dataclass(frozen=True)
class Choice:
    """Values of a list, in equal cells of the unit interval.

    Numbers are ordered. Three or more other values have one coordinate each (one-hot).
    """

    values: tuple[JsonValue, ...]

    @property
    def count(self) -> int:
        return len(self.values)

    @property
    def width(self) -> int:
        """Number of coordinates: 0 for a constant, 1 for numbers or two values, otherwise one per value."""
        ordered = all(map(_is_number, self.values))
        return min(self.count - 1, 1) if ordered or self.count < 3 else self.count

    def value_at(self, quantile: float) -> JsonValue:
        return self.values[min(int(quantile * self.count), self.count - 1)]

    def ranks(self, quantiles: Array) -> Array:
        """Return the index in the list for each position in the unit interval."""
        return np.minimum(np.floor(quantiles * self.count), self.count - 1)

    def rank(self, value: JsonValue) -> int | None:
        """Return the index in the list; None if the list does not contain the value."""
        # By text first, because 1, 1.0 and True are equal in Python.
        identical = [repr(each) == repr(value) for each in self.values]
        if True in identical:
            return identical.index(True)
        equal = [_is_number(each) and _is_number(value) and each == value for each in self.values]
        return equal.index(True) if True in equal else None

    def quantile_of(self, value: JsonValue) -> float:
        rank = self.rank(value)
        return math.nan if rank is None else (rank + 0.5) / self.count

    def coordinates(self, quantiles: Array) -> Array:
        ranks = self.ranks(quantiles)
        if self.width < 2:
            return (ranks[:, None] + 0.5)[:, : self.width] / self.count
        return np.where(
            np.isnan(ranks)[:, None], math.nan, (ranks[:, None] == np.arange(self.count)).astype(float)
        )

    def levels(self, most: int | None) -> tuple[JsonValue, ...]:
        return self.values


def scale(dimension: DimensionConfig) -> Scale:
    """Return the scale of a searched key."""
    if dimension.choice is not None:
        values = dimension.choice
        return Choice(tuple(sorted(values)) if all(map(_is_number, values)) else values)  # type: ignore[type-var]
    if dimension.kind == "constant":
        return Choice((dimension.constant,))
    log = dimension.kind.startswith("log")
    if dimension.kind.endswith("integer"):
        return Integer(int(dimension.bounds[0]), int(dimension.bounds[1]), log)
    return Real(*dimension.bounds, log)


def _is_number(value: JsonValue) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def read_model_space(model: ModelConfig) -> dict[str, DimensionConfig]:
    """Return the space of `get_model.parameter_range = [Integer(10, 50, name="filters"), ...]` as `model.args.filters`.

    It is empty if the model is not built by a function of the user with this attribute; modules that the file imports may
    define both. Raises UserError if the file cannot be run or a dimension is not supported.
    """
    if model.is_network_file or not model.user_file:
        return {}
    try:
        # Run once per process as long as the file is unchanged: several checks read the space.
        function = load_implementation(":".join(split_function_reference(model.name)))
        listed = getattr(function, ATTRIBUTE, [])
    except USER_CODE_ERRORS as error:
        raise UserError(f"{model.name} cannot be loaded: {error_with_source_line(error)}") from error
    return dict(_dimensions(model.name, listed))


def _dimensions(where: str, listed: Any) -> Iterator[tuple[str, DimensionConfig]]:
    from skopt.space import Categorical, Integer, Real

    for number, each in enumerate(listed):
        fault = "" if getattr(each, "name", None) else "has no name"
        if not isinstance(each, Categorical | Integer | Real):
            fault = "is not a scikit-optimize dimension"
        if fault:
            raise UserError(
                f"{where}: {ATTRIBUTE}[{number}] {fault}: {each!r}; use Categorical, Integer or Real, with `name` set to an "
                "argument of the function"
            )
        yield f"model.args.{each.name}", _dimension(where, each)


def _dimension(where: str, each: Any) -> DimensionConfig:
    """Convert a dimension. Raises UserError if the prior of a range is neither uniform nor log-uniform."""
    if hasattr(each, "categories"):
        return DimensionConfig(choice=tuple(_plain(value) for value in each.categories))
    kinds = {"uniform": "", "log-uniform": "log_"}
    if each.prior not in kinds:
        raise UserError(
            f"{where}: prior '{each.prior}' of {each.name} is not supported; {suggest_name(each.prior, kinds)}"
        )
    kind, number = ("integer", int) if type(each).__name__ == "Integer" else ("uniform", float)
    ends = number(each.low), number(each.high)
    return DimensionConfig.model_validate({f"{kinds[each.prior]}{kind}": ends})


def _plain(value: Any) -> Any:
    """Convert NumPy scalars to Python scalars and tuples to lists, as experiment files contain them."""
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value.item() if hasattr(value, "item") else value
