"""Comparisons of all runs by all metrics, as text and as comparisons.csv, and of the best trial of a search with the others."""

import math
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

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
    folders, by_run = {job.key: job for job in jobs}, group_by_run(jobs)

    def sample_values(key: JobKey, column: str) -> Values | None:
        return folders[key].sample_metrics.get(column)

    found = {metric.column: compare_runs(table, metric, sample_values) for metric in quality_metrics(table)}
    # Seconds of a virtual clock and of a measured one cannot be compared.
    for metric in SPEEDS if table["transport"].eq("simulated").nunique() == 1 else ():
        found[metric.column] = compare_runs(
            table, metric, sample_values, lambda *runs: why_not_timed_together(*map(by_run.__getitem__, runs))
        )
    return found


def why_not_timed_together(jobs: Sequence[FinishedRun], others: Sequence[FinishedRun]) -> str:
    """Return why the times of two runs tell nothing about the runs, or an empty string if they do.

    The load and the clock rate of a host change with the hours. Trainings of one command, or of runs that took turns, met
    the same conditions; otherwise a difference may be that of the conditions.
    """
    both = [*jobs, *others]
    if all(job.has_virtual_seconds for job in both):
        return ""
    # Runs that ask for other partitions or GPUs compare these.
    asked = (("resources", "partition"), ("parallel", "gpus_per_rank"))
    places = {tuple(job.config_section(section).get(key) for section, key in asked) for job in both}
    processors = [
        {host["cpu"] for job in run for host in job.summary.get("hardware", {}).values()}
        for run in (jobs, others)
    ]
    if len(places) == 1 and processors[0] != processors[1]:
        return "measured on different processors"
    sessions = {job.summary.get("session") for job in both}
    if len(sessions) == 1 and None not in sessions:
        return ""
    # Times are UTC in ISO 8601, so that their alphabetical order is their order in time.
    starts, ends = (
        [[str(job.summary.get(key) or "") for job in run] for run in (jobs, others)]
        for key in ("started", "finished")
    )
    took_turns = all(map(all, (*starts, *ends))) and max(map(min, starts)) <= min(map(max, ends))
    return "" if took_turns else "measured at different times"


def write_comparisons(comparisons: dict[str, list[RunComparison]], path: Path) -> None:
    """Write one row per metric and pair of runs as CSV; columns: COLUMNS (see docs/reference/files.md)."""
    rows = []
    for each in chain.from_iterable(comparisons.values()):
        metric, test = each.metric, each.test.within(each.metric.bound)
        scale = "ratio" if metric.is_ratio else "difference"
        ends = [math.exp(end) if metric.is_ratio else end for end in (test.difference, test.low, test.high)]
        rows.append((
            metric.column, each.run, each.other, scale, *ends, test.p_value, each.p_holm, each.better, each.method,
            test.pairs, each.left_out, each.more_seeds,
        ))  # fmt: skip
    table = pd.DataFrame(rows, columns=list(COLUMNS)).astype({"more_seeds": "Int64"})
    with atomic_write(path) as part:
        table.to_csv(part, index=False, lineterminator="\n")


class TrialComparison(NamedTuple):
    """The test of the mean of a trial minus the mean of the best one, by folds, and its verdict.

    `is_worse`: whether the trial is worse than the best one, at an error rate of ERROR_RATE over all trials.
    """

    trial: int
    test: PairedTest
    is_worse: bool


def compare_with_best(
    best: int, folds: Mapping[int, Sequence[float]], larger_is_better: bool
) -> list[TrialComparison]:
    """Return the comparison of each other trial with the best one.

    The trials that are not worse contain the truly best trial with a probability of at least 95 % (multiple
    comparisons with the best, Hsu 1984), although the data choose the best trial: the truly best trial is called
    worse only if one of its `len(folds) - 1` one-sided tests is wrong, each at the level ERROR_RATE divided by their
    number (Bonferroni). `folds` are the values of each trial; all trials have the same folds.
    """
    count = len(folds[best])
    overlap, level = 1 / (count - 1) if count > 1 else 0.0, ERROR_RATE / max(len(folds) - 1, 1)
    found = []
    for trial, values in folds.items():
        if trial != best:
            differences = [own - top for own, top in zip(values, folds[best], strict=True)]
            test = paired_test(differences, overlap)
            is_behind = (test.difference < 0) == larger_is_better
            one_sided = test.p_value / 2 if is_behind else 1 - test.p_value / 2
            found.append(TrialComparison(trial, test, one_sided <= level))
    return found


def difference_text(metric: ComparedMetric, test: PairedTest, sign: int = 1) -> str:
    """Write a mean difference with its 95 % interval: `+1.2 [0.5, 1.9] points`; ratios as `1.25 [1.1, 1.4] times`.

    `sign`: -1 for the opposite difference, or the reciprocal ratio. Accuracies are written in percentage points.
    """
    scale = sign * (100 if metric.is_accuracy else 1)
    known = test.within(metric.bound)
    ends = (scale * known.difference, *sorted((scale * known.low, scale * known.high)))
    middle, low, high = map(math.exp, ends) if metric.is_ratio else ends
    if not math.isfinite(middle):
        return MISSING
    unit = f"{UNBROKEN}times" if metric.is_ratio else f"{UNBROKEN}points" if metric.is_accuracy else ""

    def written(value: float, places: int, plus: str = "") -> str:
        # The minus sign, unlike a hyphen, does not end a line.
        return f"{value:{plus},.{places}f}".replace("-", "\u2212")

    plus = "" if metric.is_ratio else "+"
    if not math.isfinite(low):
        return f"{written(middle, decimals(middle, 3) if metric.is_ratio else _digits(middle), plus)}{unit}"
    # Two digits of the width of the interval.
    digits = _digits((high - low) / 2) if high > low else _digits(middle)
    # A ratio near 0 must not be written as 0: each ratio has at least two significant digits.
    places = [max(digits, _digits(each)) if metric.is_ratio else digits for each in (middle, low, high)]
    return f"{written(middle, places[0], plus)} [{written(low, places[1])}, {written(high, places[2])}]{unit}"


def _digits(value: float) -> int:
    return min(decimals(value, 2), 8)


def p_text(p_value: float) -> str:
    """Write a p-value: `p = 0.012`, `p < 0.001`; an empty string if it is unknown."""
    if not math.isfinite(p_value):
        return ""
    return "p < 0.001" if p_value < 0.001 else f"p = {number(p_value, 2)}"
