"""The table that compares the runs."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from nnlo_lib.config.stopping import better_direction
from nnlo_lib.report.formatting import MISSING, format_bytes, format_duration, number, plus_minus
from nnlo_lib.report.sections.consensus import node_metric_ranges
from nnlo_lib.report.tables import Spread, leaders, ranking_metric, spread_by_run, test_metrics
from nnlo_lib.report.time_base import TimeBase

FormatSpread = Callable[[Spread], str]


@dataclass(frozen=True)
class Cell:
    """A cell of the comparison.

    Attributes:
        text: formatted value.
        best: whether the run is better than every other run by more than the spread.
        note: text below the value.
    """

    text: str
    best: bool = False
    note: str = ""


@dataclass(frozen=True)
class ComparisonColumn:
    """A column of the comparison: a heading, and a cell per run."""

    heading: str
    cells: dict[str, Cell]


@dataclass(frozen=True)
class JobPositions:
    """Values of a run's jobs, scaled from 0 (smallest value of all jobs) to 1 (largest), and their mean."""

    places: tuple[float, ...]
    mean: float


def comparison_columns(table: pd.DataFrame, clock: TimeBase) -> list[ComparisonColumn]:
    """Return the columns of the comparison; columns without any value are left out."""
    # The runs may use different loss functions: then no loss is marked as best.
    loss_highest = None if ranking_metric(table)[0] not in ("accuracy", "loss") else False
    columns = [
        _of_nodes(table, _column(table, "accuracy", "test accuracy", _percent, True), "accuracy"),
        _column(table, "loss", "test loss", plus_minus, loss_highest),
        *(_test(table, name) for name in test_metrics(table)),
        *_times(table, clock),
        _column(table, "bytes_sent", "bytes sent", lambda spread: format_bytes(spread.mean)),
        _column(table, "ranks", "ranks", _count),
        *(_column(table, name, name, _count) for name in ("epochs",) if table[name].nunique() > 1),
        # The sum over the jobs instead of the mean: restarts are events, not repeated measurements.
        _column(table, "restarts", "restarts", lambda spread: f"{spread.mean * spread.count:.0f}"),
    ]
    return [column for column in columns if any(cell.text != MISSING for cell in column.cells.values())]


def job_positions(table: pd.DataFrame, column: str) -> dict[str, JobPositions]:
    """Return the positions of the jobs by run; empty if all values are equal or only one is known."""
    values = table[column].dropna()
    low, high = values.min(), values.max()
    if not low < high < math.inf:
        return {}
    places = ((values - low) / (high - low)).groupby(table["run"], sort=False)
    return {str(run): JobPositions(tuple(group), group.mean()) for run, group in places}


def job_rows(table: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    """Return the headings and the rows of the table of all jobs; empty columns are left out."""
    shown = [name for name in map(str, table) if table[name].notna().any()]
    rows = [
        [_plain(str(name), value) for name, value in row.items()] for row in table[shown].to_dict("records")
    ]
    return [name.replace("_", " ") for name in shown], rows


def _times(table: pd.DataFrame, clock: TimeBase) -> list[ComparisonColumn]:
    """Return the columns of time and speed; if clocks differ, mark no run as best and note virtual times."""
    # Virtual seconds follow the machine model, and measured ones the host: no run can win.
    time_highest, speed_highest = (None, None) if clock.mixed else (False, True)
    columns = [
        _column(table, "seconds", f"{clock.word or 'training'} time", _duration, time_highest),
        _column(
            table,
            "samples_per_second",
            "samples/virtual s" if clock.word else "samples/s",
            plus_minus,
            speed_highest,
        ),
    ]
    notes = dict.fromkeys(clock.virtual, "virtual") if clock.mixed else {}
    return [_noted(column, notes) for column in columns]


def _of_nodes(table: pd.DataFrame, column: ComparisonColumn, metric: str) -> ComparisonColumn:
    """Add the validation results of node models as notes; the tested model has their averaged parameters.

    Args:
        table: summary with one row per job.
        column: column to which the notes are added.
        metric: validation metric of the notes, without `val_`.
    """
    notes = {run: f"validation {span}" for run, span in node_metric_ranges(table, metric).items()}
    return _noted(column, notes)


def _test(table: pd.DataFrame, name: str) -> ComparisonColumn:
    format_spread = _percent if name.endswith("accuracy") else plus_minus
    heading = f"test {name}".replace("_", " ")
    return _column(table, name, heading, format_spread, better_direction(name) == "larger")


def _noted(column: ComparisonColumn, notes: dict[str, str]) -> ComparisonColumn:
    noted = {run: replace(column.cells[run], note=note) for run, note in notes.items()}
    return ComparisonColumn(column.heading, column.cells | noted)


def _column(
    table: pd.DataFrame, name: str, heading: str, format_spread: FormatSpread, highest: bool | None = None
) -> ComparisonColumn:
    """Return a column of the comparison.

    Args:
        table: summary with one row per job.
        name: column of `table`.
        heading: heading of the new column.
        format_spread: formats the mean and the standard deviation of a run.
        highest: whether the highest mean is best; None if no run is marked as best.
    """
    values = spread_by_run(table, name)
    first = leaders(values, highest) if highest is not None and len(values) > 1 else []
    # `leaders` also returns the runs within the spread of the best run: then no run is marked.
    winner = first[0] if len(first) == 1 else None
    runs: Sequence[str] = list(dict.fromkeys(table["run"]))
    cells = {
        run: Cell(format_spread(values[run]), run == winner) if run in values else Cell(MISSING)
        for run in runs
    }
    return ComparisonColumn(heading, cells)


def _percent(spread: Spread) -> str:
    return plus_minus(spread, 100, "%")


def _duration(spread: Spread) -> str:
    return plus_minus(spread, 1, "s") if spread.mean < 600 else format_duration(spread.mean)


def _count(spread: Spread) -> str:
    return f"{spread.mean:.0f}" if spread.std == 0 or spread.count == 1 else plus_minus(spread)


def _plain(name: str, value: object) -> str:
    if pd.isna(value):  # type: ignore[call-overload]
        return MISSING
    if name == "bytes_sent":
        return f"{int(value):,}"  # type: ignore[call-overload]
    return number(value) if isinstance(value, float) else str(value)
