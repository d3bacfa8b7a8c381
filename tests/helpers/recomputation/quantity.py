"""Comparison of a displayed quantity with an exact value."""

import math
import re
from statistics import fmean, stdev
from typing import NamedTuple

NUMBER = r"[-\u2212]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?"
UNIT = r"(?:%|virtual s\b|s\b|B\b|kB\b|MB\b|GB\b|min\b|[kMGT](?=\s|FLOP|$))"
QUANTITY = rf"(?:–|\d+ h \d\d min|(?:< )?{NUMBER}(?: ?{UNIT})?)"
SPREAD = rf"(?:–|{NUMBER}(?: ± {NUMBER})?(?: ?{UNIT})?)"
FACTORS = {
    "": 1, "%": 0.01, "s": 1, "virtual s": 1, "min": 60, "B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9,
    "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12,
}  # fmt: skip
LEAST_SHARE = "< 0.1 %"  # displayed for smaller shares that are not zero
NONE = "–"  # displayed for a missing value


class Difference(float):
    """A difference, which may be displayed as zero if its interval is much wider."""


class Spread(NamedTuple):
    """Mean and sample standard deviation; the deviation of a single value is NaN."""

    mean: float
    deviation: float


def spread(values: list[float]) -> Spread:
    """Return mean and sample standard deviation."""
    return Spread(fmean(values), stdev(values) if len(values) > 1 else math.nan)


def agrees(displayed: str, value: "float | int | Spread | None") -> bool:
    """Return True if the text is the value, rounded to the displayed digits."""
    if isinstance(value, Spread):
        return _spread_agrees(displayed, value)
    if value is None or not math.isfinite(value):
        return displayed == NONE
    if hours := re.fullmatch(r"(\d+) h (\d\d) min", displayed):
        return abs(60 * (60 * int(hours[1]) + int(hours[2])) - value) <= 30
    if displayed == LEAST_SHARE:
        return 0 < value < 0.001
    found = re.fullmatch(rf"({NUMBER})(?: ?({UNIT}))?", displayed)
    if not found:
        return False
    factor = FACTORS[found[2] or ""]
    shown = float(found[1].replace(",", "").replace("\u2212", "-"))
    return _rounded(found[1], shown * factor, factor, value)


def _rounded(digits: str, shown: float, factor: float, value: float) -> bool:
    if isinstance(value, int) and factor == 1 and "." not in digits:
        return shown == value
    # A quantity that is not zero must not be displayed as zero.
    nothing = shown == 0 and abs(value) > 1e-12 and not isinstance(value, Difference)
    return not nothing and abs(shown - value) <= _half_unit(digits) * factor * 1.0001 + 1e-12 * abs(value)


def _half_unit(digits: str) -> float:
    mantissa, _, power = digits.partition("e")
    return 0.5 * 10.0 ** (int(power or 0) - len(mantissa.partition(".")[2]))


def _spread_agrees(displayed: str, value: Spread) -> bool:
    found = re.fullmatch(rf"({NUMBER})(?: ± ({NUMBER}))?( ?{UNIT})?", displayed)
    if not found:
        return displayed == NONE and not math.isfinite(value.mean)
    mean, deviation, unit = found[1], found[2], found[3] or ""
    # Rounding errors of equal values give a deviation near 1e-16 of the mean.
    exact = 0.0 if value.deviation < 1e-12 * abs(value.mean) else value.deviation
    if deviation is None:
        return agrees(mean + unit, value.mean) and not exact > 0
    return agrees(mean + unit, value.mean) and agrees(deviation + unit, exact)
