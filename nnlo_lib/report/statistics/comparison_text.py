"""Comparisons of all runs by all metrics, as text and as comparisons.csv, and of the best trial of a search with the others."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from nnlo_lib.core.atomic_file import atomic_write
from nnlo_lib.core.text_format import MISSING, decimals, number
from nnlo_lib.report.formatting import UNBROKEN
from nnlo_lib.report.statistics.run_comparison import (
    SPEEDS,
    ComparedMetric,
    JobKey,
    RunComparison,
    compare_runs,
    quality_metrics,
)
from nnlo_lib.report.statistics.significance import ERROR_RATE, PairedTest, Values, paired_test
from nnlo_lib.report.tables import group_by_run
from nnlo_lib.state.finished_run import FinishedRun

COLUMNS = (
    "metric", "run", "other", "scale", "difference", "low", "high", "p_value", "p_holm", "better", "pairs_are",
    "pairs", "left_out", "more_seeds",
)  # fmt: skip


def compare_all(table: pd.DataFrame, jobs: Sequence[FinishedRun]) -> dict[str, list[RunComparison]]:
    """Return the comparisons of all pairs of runs by the column of each metric, the ranking metric first.

    Each metric is a family of tests of its own: its verdicts are wrong with at most 5 % probability.
    `jobs` are those of the rows of the summary `table`.
    """
    folders = {job.key: job for job in jobs}

    def sample_values(key: JobKey, column: str) -> Values | None:
        return folders[key].sample_metrics.get(column)

    # Seconds of a virtual clock and of a measured one cannot be compared.
    speeds = SPEEDS if table["transport"].eq("simulated").nunique() == 1 else ()
    by_run = group_by_run(jobs)

    def not_timed_together(run: str, other: str) -> str:
        return why_not_timed_together(by_run[run], by_run[other])

    return {
        **{metric.column: compare_runs(table, metric, sample_values) for metric in quality_metrics(table)},
        **{
            metric.column: compare_runs(table, metric, sample_values, not_timed_together) for metric in speeds
        },
    }


def why_not_timed_together(jobs: Sequence[FinishedRun], others: Sequence[FinishedRun]) -> str:
    """Return why the times of two runs tell nothing about the runs, or an empty string if they do.

    The load and the clock rate of a host change with the hours. Trainings of one command, or of runs that took turns, met
    the same conditions; otherwise a difference may be that of the conditions.
    """
    both = [*jobs, *others]
    if all(job.has_virtual_seconds for job in both):
        return ""
    # Runs that ask for other partitions or GPUs compare these.
    places = [
        (
            job.config_section("resources").get("partition"),
            job.config_section("parallel").get("gpus_per_rank"),
        )
        for job in both
    ]
    processors = [
        {host["cpu"] for job in run for host in job.summary.get("hardware", {}).values()}
        for run in (jobs, others)
    ]
    if len(set(places)) == 1 and processors[0] != processors[1]:
        return "measured on different processors"
    sessions = {job.summary.get("session") for job in both}
    if len(sessions) == 1 and None not in sessions:
        return ""
    # Times are UTC in ISO 8601, so that their alphabetical order is their order in time.
    starts, ends = (
        [[str(job.summary.get(key) or "") for job in run] for run in (jobs, others)]
        for key in ("started", "finished")
    )
    if all(map(all, (*starts, *ends))) and max(map(min, starts)) <= min(map(max, ends)):
        return ""
    return "measured at different times"


def write_comparisons(comparisons: dict[str, list[RunComparison]], path: Path) -> None:
    """Write one row per metric and pair of runs as CSV; columns: COLUMNS (see docs/reference/files.md)."""
    rows = [_row(comparison) for each in comparisons.values() for comparison in each]
    table = pd.DataFrame(rows, columns=list(COLUMNS)).astype({"more_seeds": "Int64"})
    with atomic_write(path) as part:
        table.to_csv(part, index=False, lineterminator="\n")


def _row(comparison: RunComparison) -> tuple[object, ...]:
    metric, test = comparison.metric, comparison.test
    ends = [math.exp(end) if metric.is_ratio else end for end in (test.difference, test.low, test.high)]
    return (
        metric.column, comparison.run, comparison.other, "ratio" if metric.is_ratio else "difference", *ends,
        test.p_value, comparison.p_holm, comparison.better, comparison.method, test.pairs, comparison.left_out,
        comparison.more_seeds,
    )  # fmt: skip


@dataclass(frozen=True)
class TrialComparison:
    """A trial compared with the best one, by paired differences of the same folds.

    Attributes:
        test: test of the mean of the trial minus the mean of the best trial.
        is_worse: whether the trial is worse than the best one, at an error rate of ERROR_RATE over all trials.
    """

    trial: int
    test: PairedTest
    is_worse: bool


def compare_with_best(
    best: int, folds: Mapping[int, Sequence[float]], larger_is_better: bool, step: float = 0.0
) -> list[TrialComparison]:
    """Return the comparison of each other trial with the best one.

    The trials that are not worse contain the truly best trial with a probability of at least 95 % (multiple
    comparisons with the best, Hsu 1984), although the data choose the best trial: the truly best trial is called
    worse only if one of its `len(folds) - 1` one-sided tests is wrong, each at the level ERROR_RATE divided by their
    number (Bonferroni).

    Args:
        best: number of the trial with the best mean.
        folds: values of each trial, in the same order of folds; all trials have the same folds.
        larger_is_better: direction of the objective.
        step: distance between neighboring values; see paired_test.
    """
    count = len(folds[best])
    overlap = 1 / (count - 1) if count > 1 else 0.0
    tests = {
        trial: paired_test([own - top for own, top in zip(values, folds[best], strict=True)], overlap, step)
        for trial, values in folds.items()
        if trial != best
    }
    level = ERROR_RATE / max(len(tests), 1)
    return [
        TrialComparison(trial, test, _one_sided(test, larger_is_better) <= level)
        for trial, test in tests.items()
    ]


def _one_sided(test: PairedTest, larger_is_better: bool) -> float:
    is_worse = (test.difference < 0) == larger_is_better
    return test.p_value / 2 if is_worse else 1 - test.p_value / 2


def difference_text(metric: ComparedMetric, test: PairedTest, sign: int = 1) -> str:
    """Write a mean difference with its 95 % interval: `+1.2 [0.5, 1.9] points`; ratios as `1.25 [1.1, 1.4] times`.

    Args:
        metric: its differences are written in percentage points if it is an accuracy.
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


def _digits(value: float) -> int:
    return min(decimals(value, 2), 8)


def _signed(metric: ComparedMetric, value: float, digits: int) -> str:
    return _minus(f"{value:,.{digits}f}" if metric.is_ratio else f"{value:+,.{digits}f}")


def _minus(text: str) -> str:
    """Replace the hyphen of a negative number by a minus sign, which does not end a line."""
    return text.replace("-", "\u2212")


def p_text(p_value: float) -> str:
    """Write a p-value: `p = 0.012`, `p < 0.001`; an empty string if it is unknown."""
    if not math.isfinite(p_value):
        return ""
    return "p < 0.001" if p_value < 0.001 else f"p = {number(p_value, 2)}"
