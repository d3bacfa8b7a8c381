"""Differences between runs as text."""

import math

from nnlo_lib.core.text_format import MISSING, decimals, number
from nnlo_lib.report.formatting import UNBROKEN
from nnlo_lib.report.statistics.compared_metric import ComparedMetric
from nnlo_lib.report.statistics.paired_test import PairedTest


def difference_text(metric: ComparedMetric, test: PairedTest, sign: int = 1) -> str:
    """Write a mean difference with its 95 % interval: `+1.2 [0.5, 1.9] points`; ratios as `1.25 [1.1, 1.4] times`.

    Args:
        metric: the metric; differences of accuracies are written in percentage points.
        test: the test of the difference.
        sign: -1 for the opposite difference, or the reciprocal ratio.
    """
    scale = 100 if metric.is_accuracy else 1
    ends = [
        sign * scale * value
        for value in (test.difference, *sorted((test.low, test.high), key=lambda end: sign * end))
    ]
    middle, low, high = map(math.exp, ends) if metric.is_ratio else ends
    if not math.isfinite(middle):
        return MISSING
    unit = "times" if metric.is_ratio else "points" if metric.is_accuracy else ""
    tail = UNBROKEN + unit if unit else ""
    if not math.isfinite(low):
        return f"{_signed(metric, middle, _digits(middle))}{tail}"
    # Two digits of the width of the interval.
    digits = _digits((high - low) / 2) if high > low else _digits(middle)
    # A ratio near 0 must not be written as 0: each ratio has at least two significant digits.
    places = [max(digits, _digits(each)) if metric.is_ratio else digits for each in (middle, low, high)]
    interval = f"[{_minus(f'{low:,.{places[1]}f}')}, {_minus(f'{high:,.{places[2]}f}')}]"
    return f"{_signed(metric, middle, places[0])} {interval}{tail}"


def p_text(p_value: float) -> str:
    """Write a p-value: `p = 0.012`, `p < 0.001`; an empty string if it is unknown."""
    if not math.isfinite(p_value):
        return ""
    return "p < 0.001" if p_value < 0.001 else f"p = {number(p_value, 2)}"


def _digits(value: float) -> int:
    return min(decimals(value, 2), 8)


def _signed(metric: ComparedMetric, value: float, digits: int) -> str:
    return _minus(f"{value:,.{digits}f}" if metric.is_ratio else f"{value:+,.{digits}f}")


def _minus(text: str) -> str:
    """Replace the hyphen of a negative number by a minus sign, which does not end a line."""
    return text.replace("-", "\u2212")
