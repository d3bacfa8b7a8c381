"""Formatting of numbers, units and names for the report."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pandas as pd
from markupsafe import escape

from nnlo_lib.core.text_format import MISSING, decimals, duration_text, number, size_text
from nnlo_lib.report.tables import Spread

UNBROKEN = "\u00a0"  # no-break space
MAX_NAMED_RUNS = 3  # runs; a sentence gives the number or the range of more, instead of their names
MAX_NAMED_TASKS = 5  # training tasks; a sentence counts the others


def rounded(value: float) -> str:
    """Write a number rounded to three significant digits, also if it has more digits before the point."""
    return number(float(f"{value:.3g}"), 3)


def percent(value: float, digits: int = 3) -> str:
    """Write a fraction (1 is the whole) as a percentage with `digits` significant digits."""
    return MISSING if not math.isfinite(value) else f"{number(100 * value, digits)}{UNBROKEN}%"


def share(value: float) -> str:
    """Write a fraction (1 is the whole) as a percentage, to a tenth of a percent."""
    return f"<{UNBROKEN}0.1{UNBROKEN}%" if 0 < value < 0.001 else f"{100 * value:.1f}{UNBROKEN}%"


def format_bytes(count: float) -> str:
    """Write a number of bytes without breaks."""
    return size_text(count).replace(" ", UNBROKEN)


def format_duration(seconds: float) -> str:
    """Write a duration without breaks."""
    return duration_text(seconds).replace(" ", UNBROKEN)


def core_cost(hours: float) -> str:
    """Write the core hours of a search."""
    return f"{rounded(3600 * hours)} core seconds" if hours < 0.1 else f"{rounded(hours)} core hours"


def plus_minus(spread: Spread, scale: float = 1, unit: str = "") -> str:
    """Write mean ± standard deviation, both times `scale`, rounded to two significant digits of the standard deviation.

    The mean has at most five significant digits. Without a finite standard deviation, only the mean is written.
    """
    mean, std = spread.mean * scale, spread.std * scale
    tail = UNBROKEN + unit if unit else ""
    if not math.isfinite(mean):
        return MISSING
    if not math.isfinite(std):
        return number(mean, 4) + tail
    # A tiny deviation would otherwise give the mean more digits than can be read.
    places = min(decimals(std, 2), decimals(mean, 5)) if std else decimals(mean, 4)
    # A deviation that is not 0 must not be written as 0.
    deviation = f"{std:,.{places}f}" if std >= 0.5 * 10**-places or not std else f"{std:.1e}"
    return f"{mean:,.{places}f}{UNBROKEN}±{UNBROKEN}{deviation}{tail}"


def bold(name: str) -> str:
    """Return a name in bold as HTML, escaped because names come from the user."""
    return f"<b>{escape(name)}</b>"


def listing(names: Sequence[str]) -> str:
    """Join names: `a, b and c`."""
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def task_name(run: str, seed: int, fold: int | None) -> str:
    """Return the name of a training task: `allreduce seed 1, fold 2`; `fold` may be NA."""
    return f"{run} seed {seed}" + ("" if pd.isna(fold) else f", fold {fold}")


def task_listing(names: Sequence[str]) -> str:
    """Join the first MAX_NAMED_TASKS names of training tasks and the number of the others: `a, b, c, d, e and 2 more`."""
    more = len(names) - MAX_NAMED_TASKS
    return listing([*names[:MAX_NAMED_TASKS], *([f"{more} more"] if more > 0 else [])])


class RunTable(NamedTuple):
    """Table with one row per run; the cells of a row follow the order of the headings."""

    headings: tuple[str, ...]
    rows: dict[str, tuple[str, ...]]


def run_table(cells: Mapping[str, Mapping[str, str]]) -> RunTable:
    """Return a table of cells given by run and heading; runs and headings without values are left out."""
    full = {run: row for run, row in cells.items() if set(row.values()) - {MISSING}}
    order = dict.fromkeys(name for row in full.values() for name in row)
    headings = tuple(
        name for name in order if any(row.get(name, MISSING) != MISSING for row in full.values())
    )
    rows = {run: tuple(row.get(name, MISSING) for name in headings) for run, row in full.items()}
    return RunTable(headings, rows)
