"""The table that sets the runs side by side."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from nnlo_lib.config.stopping import better_of
from nnlo_lib.report.clock import Clock
from nnlo_lib.report.nodes import spans
from nnlo_lib.report.tables import Spread, leaders, ranking, spreads, test_metrics
from nnlo_lib.report.words import MISSING, number, plus_minus, seconds, size

Say = Callable[[Spread], str]


@dataclass(frozen=True)
class Cell:
    """What a run has in a column; `best` if it beats every other run by more than the spread; a note below."""

    text: str
    best: bool = False
    note: str = ""


@dataclass(frozen=True)
class Column:
    """A quantity of the comparison: heading, a cell per run."""

    heading: str
    cells: dict[str, Cell]


@dataclass(frozen=True)
class Dots:
    """Where the jobs of a run lie between the least and the largest value of all jobs, 0 to 1."""

    places: tuple[float, ...]
    mean: float


def columns(table: pd.DataFrame, clock: Clock) -> list[Column]:
    """Return the columns of the comparison; those that no run has are left out."""
    lowest = (
        None if ranking(table)[0] not in ("accuracy", "loss") else False
    )  # losses may be of several kinds
    made = [
        _of_nodes(table, _column(table, "accuracy", "test accuracy", _percent, True), "accuracy"),
        _column(table, "loss", "test loss", plus_minus, lowest),
        *(_test(table, name) for name in test_metrics(table)),
        *_times(table, clock),
        _column(table, "bytes_sent", "bytes sent", lambda spread: size(spread.mean)),
        _column(table, "ranks", "ranks", _count),
        *(_column(table, name, name, _count) for name in ("epochs",) if table[name].nunique() > 1),
        _column(table, "restarts", "restarts", lambda spread: f"{spread.mean * spread.count:.0f}"),
    ]
    return [column for column in made if any(cell.text != MISSING for cell in column.cells.values())]


def dots(table: pd.DataFrame, column: str) -> dict[str, Dots]:
    """Return where each job lies, by run; nothing where all are alike or only one is known."""
    values = table[column].dropna()
    low, high = values.min(), values.max()
    if not low < high < math.inf:
        return {}
    places = ((values - low) / (high - low)).groupby(table["run"], sort=False)
    return {str(run): Dots(tuple(group), group.mean()) for run, group in places}


def job_rows(table: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    """Return headings and rows of the table of all jobs; empty columns are left out."""
    shown = [name for name in map(str, table) if table[name].notna().any()]
    rows = [
        [_plain(str(name), value) for name, value in row.items()] for row in table[shown].to_dict("records")
    ]
    return [name.replace("_", " ") for name in shown], rows


def _times(table: pd.DataFrame, clock: Clock) -> list[Column]:
    """Return the columns of time and speed; where the clocks differ, none is best and the virtual ones say so."""
    longest, fastest = (None, None) if clock.mixed else (False, True)
    made = [
        _column(table, "seconds", f"{clock.word or 'training'} time", _duration, longest),
        _column(
            table,
            "samples_per_second",
            "samples/virtual s" if clock.word else "samples/s",
            plus_minus,
            fastest,
        ),
    ]
    notes = dict.fromkeys(clock.virtual, "virtual") if clock.mixed else {}
    return [_noted(column, notes) for column in made]


def _of_nodes(table: pd.DataFrame, column: Column, metric: str) -> Column:
    """Note what the nodes' own models reach, where the tested model is their mean."""
    notes = {run: f"validation {span}" for run, span in spans(table, metric).items()}
    return _noted(column, notes)


def _test(table: pd.DataFrame, name: str) -> Column:
    say = _percent if name.endswith("accuracy") else plus_minus
    return _column(table, name, f"test {name}".replace("_", " "), say, better_of(name) == "larger")


def _noted(column: Column, notes: dict[str, str]) -> Column:
    noted = {run: replace(column.cells[run], note=note) for run, note in notes.items()}
    return Column(column.heading, column.cells | noted)


def _column(table: pd.DataFrame, name: str, heading: str, say: Say, highest: bool | None = None) -> Column:
    values = spreads(table, name)
    first = leaders(values, highest) if highest is not None and len(values) > 1 else []
    winner = first[0] if len(first) == 1 else None
    runs: Sequence[str] = list(dict.fromkeys(table["run"]))
    cells = {run: Cell(say(values[run]), run == winner) if run in values else Cell(MISSING) for run in runs}
    return Column(heading, cells)


def _percent(spread: Spread) -> str:
    return plus_minus(spread, 100, "%")


def _duration(spread: Spread) -> str:
    return plus_minus(spread, 1, "s") if spread.mean < 600 else seconds(spread.mean)


def _count(spread: Spread) -> str:
    return f"{spread.mean:.0f}" if spread.std == 0 or spread.count == 1 else plus_minus(spread)


def _plain(name: str, value: object) -> str:
    if pd.isna(value):  # type: ignore[call-overload]
        return MISSING
    if name == "bytes_sent":
        return f"{int(value):,}"  # type: ignore[call-overload]
    return number(value) if isinstance(value, float) else str(value)
