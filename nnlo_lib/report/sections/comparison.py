"""Comparison of the runs: a table of their means, and a matrix of differences per metric with intervals and verdicts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from nnlo_lib.core.text_format import MISSING, number, plural
from nnlo_lib.report.figure import COLORS, Figure, dot_spec, value_axis
from nnlo_lib.report.formatting import format_bytes, format_duration, plus_minus
from nnlo_lib.report.quantities import TimeBase
from nnlo_lib.report.sections.nodes import node_metric_ranges
from nnlo_lib.report.statistics.comparison_text import difference_text, p_text
from nnlo_lib.report.statistics.run_comparison import (
    ComparedMetric,
    RunComparison,
    best_run,
    evaluated_split,
    finite_jobs,
    ranking_metric,
)
from nnlo_lib.report.tables import MEASURED, Spread, spread_by_run, test_metrics

FormatSpread = Callable[[Spread], str]
Comparisons = dict[str, list[RunComparison]]  # by column of the summary


@dataclass(frozen=True)
class Cell:
    """A cell of the comparison.

    Attributes:
        best: whether the run is better than every other run; see RunComparison.
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


def comparison_columns(
    table: pd.DataFrame, clock: TimeBase, comparisons: Comparisons
) -> list[ComparisonColumn]:
    """Return the columns of the comparison, the ranking metric first; columns without any value are left out.

    Args:
        table: summary with one row per job.
        comparisons: tests of each pair of runs; a column without tests marks no run as best.
    """
    tested = _metric_columns(table)
    if (ranking := ranking_metric(table)) is not None:
        tested = {ranking.column: tested.get(ranking.column) or _metric(table, ranking.column)} | tested
    named = {**tested, **_times(table, clock)}
    columns = [
        *(_marked(column, best_run(comparisons.get(name, []))) for name, column in named.items()),
        _column(table, "bytes_sent", "bytes sent", lambda spread: format_bytes(spread.mean)),
        _column(table, "ranks", "ranks", _count),
        *(_column(table, name, name, _count) for name in ("epochs",) if table[name].nunique() > 1),
        # The sum over the jobs instead of the mean: restarts are events, not repeated measurements.
        _column(table, "restarts", "restarts", lambda spread: f"{spread.mean * spread.count:.0f}"),
    ]
    return [column for column in columns if any(cell.text != MISSING for cell in column.cells.values())]


def _metric_columns(table: pd.DataFrame) -> dict[str, ComparisonColumn]:
    """Return accuracy, loss and the other test metrics by their columns of the summary.

    The notes of the accuracy are the validation results of node models; the tested model has their averaged parameters.
    """
    found = {name: _metric(table, name) for name in ("accuracy", "loss", *test_metrics(table))}
    notes = {run: f"validation {span}" for run, span in node_metric_ranges(table, "accuracy").items()}
    return found | {"accuracy": _noted(found["accuracy"], notes)}


def _metric(table: pd.DataFrame, name: str) -> ComparisonColumn:
    metric = ComparedMetric(name, None, split=evaluated_split(table))
    column = _column(table, name, metric.words, _percent if metric.is_accuracy else plus_minus)
    planned = len(table[["seed", "fold"]].drop_duplicates())
    counts = {run: finite_jobs(table, metric, run) for run in column.cells}
    # A mean over fewer jobs than the others is not the result of the run.
    notes = {
        run: f"{finite} of {plural(planned, 'training task')}"
        for run, (finite, _) in counts.items()
        if 0 < finite < planned
    }
    return _noted(column, notes)


def _times(table: pd.DataFrame, clock: TimeBase) -> dict[str, ComparisonColumn]:
    """Return the columns of time and speed; if clocks differ, with notes on virtual times."""
    speed = "samples/virtual s" if clock.word else "samples/s"
    columns = {
        "seconds": _column(table, "seconds", f"{clock.word or 'training'} time", _duration),
        "samples_per_second": _column(table, "samples_per_second", speed, plus_minus),
    }
    notes = dict.fromkeys(clock.virtual, "virtual") if clock.mixed else {}
    return {name: _noted(column, notes) for name, column in columns.items()}


def _noted(column: ComparisonColumn, notes: dict[str, str]) -> ComparisonColumn:
    noted = {run: replace(column.cells[run], note=note) for run, note in notes.items()}
    return ComparisonColumn(column.heading, column.cells | noted)


def _marked(column: ComparisonColumn, best: str | None) -> ComparisonColumn:
    return ComparisonColumn(
        column.heading, {run: replace(cell, best=run == best) for run, cell in column.cells.items()}
    )


def _column(table: pd.DataFrame, name: str, heading: str, format_spread: FormatSpread) -> ComparisonColumn:
    """Return a column of the comparison: the mean and the standard deviation of column `name` of the summary, by run."""
    values = spread_by_run(table, name)
    runs: Sequence[str] = list(dict.fromkeys(table["run"]))
    return ComparisonColumn(
        heading, {run: Cell(format_spread(values[run]) if run in values else MISSING) for run in runs}
    )


def _percent(spread: Spread) -> str:
    return plus_minus(spread, 100, "%")


def _duration(spread: Spread) -> str:
    return plus_minus(spread, 1, "s") if spread.mean < 600 else format_duration(spread.mean)


def _count(spread: Spread) -> str:
    return f"{spread.mean:.0f}" if spread.std == 0 or spread.count == 1 else plus_minus(spread)


def job_figure(table: pd.DataFrame, metric: ComparedMetric) -> Figure | None:
    """Return the value of each job by run; None unless two values differ."""
    known = table[np.isfinite(table[metric.column].astype(float))]
    if known[metric.column].nunique() < 2:
        return None
    values = known[metric.column].astype(float)
    axis, means = value_axis(metric.column, values), values.groupby(known["run"]).transform("mean")
    runs = list(dict.fromkeys(table["run"]))
    points = pd.DataFrame({
        "label": known["run"], "color": known["run"].map(runs.index) % COLORS, "value": values,
        "y": axis.drawn(values), "mean": axis.drawn(means),
    })  # fmt: skip
    title = f"{metric.words} of each training task"
    return Figure(
        title,
        axis.note,
        f"{title}, a row of dots per run; the tick is the mean.",
        dot_spec(points, axis.encoding),
    )


def job_rows(table: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    """Return the headings and the rows of the table of all jobs.

    Empty columns are left out, and so are columns of MEASURED in which all jobs are equal.
    """
    shown = [
        name
        for name in map(str, table)
        if table[name].notna().any() and (name not in MEASURED or table[name].nunique(dropna=False) > 1)
    ]
    rows = [
        [_plain(str(name), value) for name, value in row.items()] for row in table[shown].to_dict("records")
    ]
    return [name.replace("_", " ") for name in shown], rows


def _plain(name: str, value: object) -> str:
    if pd.isna(value):  # type: ignore[call-overload]
        return MISSING
    if name == "bytes_sent":
        return f"{int(value):,}"  # type: ignore[call-overload]
    return number(value) if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class DifferenceCell:
    """The difference between two runs: run of the row minus run of the column.

    Attributes:
        verdict: `better` or `worse` (the run of the row), `differs` if the direction of the metric is unknown, or an
            empty string.
        note: seeds needed in addition, why there is no test, or an empty string.
        details: number of pairs and p-values, for a tooltip.
    """

    text: str
    verdict: str
    note: str
    details: str


@dataclass(frozen=True)
class DifferenceMatrix:
    """The differences of all pairs of runs in one metric; cells by (row, column)."""

    metric: str
    runs: tuple[str, ...]
    cells: dict[tuple[str, str], DifferenceCell]
    pairs_are: str


def difference_matrix(comparisons: Sequence[RunComparison]) -> DifferenceMatrix | None:
    """Return the matrix of one metric; None if no pair of runs has a known difference."""
    known = [each for each in comparisons if each.test.pairs]
    if not known:
        return None
    runs = tuple(dict.fromkeys(run for each in comparisons for run in (each.run, each.other)))
    cells = {(each.run, each.other): _cell(each, 1) for each in known}
    cells |= {(each.other, each.run): _cell(each, -1) for each in known}
    words = {"samples_per_second": "samples per second", "seconds": "training time"}
    metric = known[0].metric
    return DifferenceMatrix(words.get(metric.column, metric.words), runs, cells, pairs_text(known))


def _cell(comparison: RunComparison, sign: int) -> DifferenceCell:
    run = comparison.run if sign > 0 else comparison.other
    verdict = "differs" if comparison.differs else ""
    if comparison.better is not None:
        verdict = "better" if comparison.better == run else "worse"
    note = f"{plural(comparison.more_seeds, 'more seed')}" if comparison.more_seeds else comparison.untested
    parts = [pairs_text([comparison]), p_text(comparison.test.p_value)]
    if corrected := p_text(comparison.p_holm):
        parts.append(f"corrected {corrected}")
    if comparison.left_out:
        parts.append(f"{plural(comparison.left_out, 'training task')} without a partner left out")
    text = difference_text(comparison.metric, comparison.test, sign)
    return DifferenceCell(text or MISSING, verdict, note, ", ".join(filter(None, parts)))


def pairs_text(comparisons: Sequence[RunComparison]) -> str:
    """Return what the pairs of the tests are, as text: `3 seeds`, `2 to 3 seeds`, `15 folds`, `360 samples`."""
    kinds = dict.fromkeys(each.method for each in comparisons)
    counts = {
        kind: sorted({each.test.pairs for each in comparisons if each.method == kind}) for kind in kinds
    }
    return " and ".join(
        plural(found[-1], kind.removesuffix("s"))
        if len(found) == 1
        else f"{found[0]:,} to {found[-1]:,} {kind}"
        for kind, found in counts.items()
    )
