"""Comparison of the runs: a table of their means, and a matrix of differences per metric with intervals and verdicts."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from nnlo_lib.core.text_format import MISSING, number, plural
from nnlo_lib.report.figure import COLORS, Figure, dot_spec, value_axis
from nnlo_lib.report.formatting import UNBROKEN, format_bytes, format_duration, plus_minus
from nnlo_lib.report.quantities import TimeBase
from nnlo_lib.report.statistics.comparison_text import difference_text, p_text
from nnlo_lib.report.statistics.run_comparison import (
    ComparedMetric,
    RunComparison,
    best_run,
    evaluated_split,
    finite_jobs,
    ranking_metric,
)
from nnlo_lib.report.statistics.significance import without_verdict
from nnlo_lib.report.tables import MEASURED, Spread, spread_by_run, test_metrics

MAX_UNSORTED_RUNS = 12  # of more, the table begins with the best; page.html scrolls it
Comparisons = dict[str, list[RunComparison]]  # by column of the summary


class Cell(NamedTuple):
    """A cell of the comparison; `best`: whether the run is better than every other run; `note`: text below the value."""

    text: str
    best: bool
    note: str


def comparison_columns(
    table: pd.DataFrame, clock: TimeBase, comparisons: Comparisons
) -> list[tuple[str, dict[str, Cell]]]:
    """Return heading and cells by run of each column of the comparison, the ranking metric first.

    Columns without any value are left out; a column without tests marks no run as best.
    """
    ranking = ranking_metric(table)
    metrics = [
        ComparedMetric(name, None, split=evaluated_split(table))
        for name in dict.fromkeys(["accuracy", "loss", *test_metrics(table)])
    ]
    if ranking is not None:
        metrics = [ranking, *(each for each in metrics if each.column != ranking.column)]
    virtual = dict.fromkeys(clock.virtual, "virtual") if clock.mixed else {}
    speed = "samples/virtual s" if clock.word else "samples/s"
    columns: list[tuple[str, str, Callable[[Spread], str], dict[str, str]]] = [
        *((each.column, each.words, each.mean_text, _notes(table, each)) for each in metrics),
        ("seconds", f"{clock.word or 'training'} time", _duration, virtual),
        ("samples_per_second", speed, plus_minus, virtual),
        ("bytes_sent", "bytes sent", lambda spread: format_bytes(spread.mean), {}),
        ("ranks", "ranks", _count, {}),
        *([("epochs", "epochs", _count, {})] if table["epochs"].nunique() > 1 else []),
        # The sum over the jobs instead of the mean: restarts are events, not repeated measurements.
        ("restarts", "restarts", lambda spread: f"{spread.mean * spread.count:.0f}", {}),
    ]
    runs, found = list(dict.fromkeys(table["run"])), []
    if ranking is not None and len(runs) > MAX_UNSORTED_RUNS:
        means = table[ranking.column].astype(float).groupby(table["run"], sort=False).mean()
        runs = list(means.sort_values(ascending=not ranking.highest, kind="stable").index)
    for name, heading, write, notes in columns:
        spreads, best = spread_by_run(table, name), best_run(comparisons.get(name, []))
        texts = {run: write(spreads[run]) if run in spreads else MISSING for run in runs}
        if spreads:
            cells = {run: Cell(text, run == best, notes.get(run, "")) for run, text in texts.items()}
            found.append((heading, cells))
    return found


def _notes(table: pd.DataFrame, metric: ComparedMetric) -> dict[str, str]:
    """Return the runs whose mean is over fewer jobs than that of others."""
    planned = len(table[["seed", "fold"]].drop_duplicates())
    return {
        run: f"{finite} of {plural(planned, 'training task')}"
        for run in table["run"].unique()
        if 0 < (finite := finite_jobs(table, metric, run)[0]) < planned
    }


def _duration(spread: Spread) -> str:
    return plus_minus(spread, 1, "s") if spread.mean < 600 else format_duration(spread.mean)


def _count(spread: Spread) -> str:
    return f"{spread.mean:.0f}" if spread.std == 0 or spread.count == 1 else plus_minus(spread)


def job_figure(table: pd.DataFrame, metric: ComparedMetric) -> Figure | None:
    """Return the value of each job by run; None unless two values of a run differ: the comparison has single values."""
    known = table[np.isfinite(table[metric.column].astype(float))]
    if known.groupby("run")[metric.column].nunique().max() < 2:
        return None
    values = known[metric.column].astype(float)
    axis, means = value_axis(metric.column, values, "x"), values.groupby(known["run"]).transform("mean")
    runs = list(dict.fromkeys(table["run"]))
    points = pd.DataFrame({
        "label": known["run"], "color": known["run"].map(runs.index) % COLORS, "value": values,
        "y": axis.drawn(values), "mean": axis.drawn(means),
    })  # fmt: skip
    title = f"{metric.words[0].upper()}{metric.words[1:]} of each training task"
    text = f"{title}, a row of dots per run; the tick is the mean."
    return Figure(title, axis.note, text, dot_spec(points, axis.encoding))


def job_rows(table: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    """Return the headings and the rows of the table of all jobs.

    Empty columns are left out, and so are columns of MEASURED in which all jobs are equal.
    """
    shown = [
        name
        for name in map(str, table)
        if table[name].notna().any() and (name not in MEASURED or table[name].nunique(dropna=False) > 1)
    ]
    texts = table[shown].astype(object)
    if "bytes_sent" in shown:
        texts["bytes_sent"] = [f"{int(sent):,}" for sent in table["bytes_sent"]]
    texts = texts.map(
        lambda value: number(value) if isinstance(value, float) else str(value), na_action="ignore"
    )
    return [name.replace("_", " ") for name in shown], texts.fillna(MISSING).to_numpy().tolist()


class DifferenceCell(NamedTuple):
    """The difference between two runs: run of the row minus run of the column; `details`, the tooltip: pairs and p-values.

    The verdict is `better` or `worse` (the run of the row), `differs` if the direction of the metric is unknown, or empty.
    `note`: seeds needed in addition, why there is no test, or the differences of too few seeds for a test.
    """

    text: str
    verdict: str
    note: str
    details: str


class DifferenceMatrix(NamedTuple):
    """The differences of all pairs of runs in one metric; cells by (row, column)."""

    metric: str
    runs: tuple[str, ...]
    cells: dict[tuple[str, str], DifferenceCell]
    pairs_are: str


def difference_matrix(comparisons: Sequence[RunComparison]) -> DifferenceMatrix | None:
    """Return the matrix of one metric; None if no pair of runs has a known difference, or only the ratio of two times."""
    known = [each for each in comparisons if each.test.pairs > (1 if each.metric.is_ratio else 0)]
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
    few = [without_verdict(each, 1) for each in comparison.differences]
    if texts := [difference_text(comparison.metric, each, sign).split(UNBROKEN)[0] for each in few]:
        note = f"{comparison.method}: {', '.join(texts)}"
    corrected, left_out = p_text(comparison.p_holm), comparison.left_out
    parts = [
        pairs_text([comparison]),
        p_text(comparison.test.p_value),
        f"corrected {corrected}" if corrected else "",
        f"{plural(left_out, 'training task')} without a partner left out" if left_out else "",
    ]
    text = difference_text(comparison.metric, comparison.test, sign)
    return DifferenceCell(text, verdict, note, ", ".join(filter(None, parts)))


def pairs_text(comparisons: Sequence[RunComparison]) -> str:
    """Return what the pairs of the tests are, as text: `3 seeds`, `2 to 3 seeds`, `15 folds`, `360 samples`."""
    counts: dict[str, set[int]] = {}
    for each in comparisons:
        counts.setdefault(each.method, set()).add(each.test.pairs)
    return " and ".join(
        plural(max(found), kind.removesuffix("s"))
        if len(found) == 1
        else f"{min(found):,} to {max(found):,} {kind}"
        for kind, found in counts.items()
    )
