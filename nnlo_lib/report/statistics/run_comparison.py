"""Comparison of runs by one metric: a test of each pair of runs, corrected for the number of pairs."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np
import pandas as pd

from nnlo_lib.report.statistics.compared_metric import ComparedMetric
from nnlo_lib.report.statistics.multiple_tests import holm
from nnlo_lib.report.statistics.paired_test import ERROR_RATE, PairedTest, paired_test
from nnlo_lib.report.statistics.power import more_seeds
from nnlo_lib.report.statistics.sample_test import Values, sample_test

Method = Literal["seeds", "folds", "samples"]  # what the pairs of a test are
JobKey = tuple[str, int, int | None]  # run, seed, fold
SampleValues = Callable[[JobKey, str], Values | None]  # job and column -> a value for each test sample


@dataclass(frozen=True)
class RunComparison:
    """The test of one pair of runs.

    Attributes:
        metric: the metric.
        run: one of the runs.
        other: the other run.
        method: what the pairs of the test are: jobs with the same seed, with the same seed and fold, or, if the
            runs share a single job, test samples.
        test: test of the mean of `run` minus the mean of `other`; for ratios, of the difference of logarithms.
        p_holm: p-value, corrected for all pairs of runs that are tested by this metric; NaN if not tested.
        left_out: seeds and folds that only one of the runs has, or with a value that is not finite.
        more_seeds: seeds needed in addition for a verdict; None if there is a verdict or the number is unknown.
    """

    metric: ComparedMetric
    run: str
    other: str
    method: Method
    test: PairedTest
    p_holm: float
    left_out: int
    more_seeds: int | None

    @property
    def differs(self) -> bool:
        """Whether the runs differ, at an error rate of ERROR_RATE over all pairs of runs."""
        return self.p_holm <= ERROR_RATE

    @property
    def better(self) -> str | None:
        """The better run; None without a verdict."""
        if not self.differs or self.metric.highest is None:
            return None
        return self.run if (self.test.difference > 0) == self.metric.highest else self.other


def best_run(comparisons: Sequence[RunComparison]) -> str | None:
    """Return the run that is better than each other run; None if there is no such run."""
    runs = dict.fromkeys(run for each in comparisons for run in (each.run, each.other))
    wins = Counter(each.better for each in comparisons)
    return next((run for run in runs if wins[run] == len(runs) - 1), None)


@dataclass(frozen=True)
class _Pair:
    run: str
    other: str
    method: Method
    test: PairedTest
    left_out: int


def compare_runs(
    table: pd.DataFrame, metric: ComparedMetric, sample_values: SampleValues
) -> list[RunComparison]:
    """Return the test of each pair of runs, in order of first appearance of the runs.

    Jobs are paired by seed and fold: runs share initial weights, splits and order of samples, which cancel in the
    differences. Runs with different data are not paired.

    Args:
        table: summary with one row per job.
        metric: the metric.
        sample_values: returns the values of the test samples, for runs that share a single job.
    """
    pairs = [
        _compared_pair(table, metric, run, other, sample_values)
        for run, other in combinations(dict.fromkeys(table["run"]), 2)
    ]
    adjusted = holm([pair.test.p_value for pair in pairs])
    tested = sum(np.isfinite(adjusted))
    return [
        RunComparison(
            metric, pair.run, pair.other, pair.method, pair.test, p_holm, pair.left_out,
            more_seeds(pair.test, tested) if pair.method == "seeds" and p_holm > ERROR_RATE else None,
        )
        for pair, p_holm in zip(pairs, adjusted, strict=True)
    ]  # fmt: skip


def _compared_pair(
    table: pd.DataFrame, metric: ComparedMetric, run: str, other: str, sample_values: SampleValues
) -> _Pair:
    rows = table[table["run"].isin((run, other))]
    values, others = _paired_values(rows, metric, run, other)
    left_out = len(rows[["seed", "fold"]].drop_duplicates()) - len(values)
    has_folds = bool(rows["fold"].notna().any())
    if len(values) > 1 and _varies(rows, metric):
        test = paired_test((values - others).to_list(), metric.overlap(rows), metric.step(rows))
        return _Pair(run, other, "folds" if has_folds else "seeds", test, left_out)
    # The only pair that is left of several jobs does not stand for the jobs that failed.
    single = rows.groupby("run").size().max() == 1 or len(values) > 1
    of_samples = _tested_samples(metric, run, other, values, sample_values) if single else None
    return _Pair(
        run, other, "samples" if of_samples else "seeds", of_samples or _untested(values, others), left_out
    )


def _varies(rows: pd.DataFrame, metric: ComparedMetric) -> bool:
    """Return whether the jobs of a run differ; equal results of all seeds are repetitions of one result.

    Equal accuracies of few samples are no equal results: the losses differ.
    """
    names = {metric.column, "loss"} & set(rows)
    return any(values.nunique() > 1 for name in names for _, values in rows.groupby("run")[name])


def _paired_values(
    rows: pd.DataFrame, metric: ComparedMetric, run: str, other: str
) -> tuple["pd.Series[float]", "pd.Series[float]"]:
    """Return the values of both runs by (seed, fold), for the jobs in which both are finite and have equal data.

    Args:
        rows: rows of both runs in the summary.
        metric: the metric.
        run: one of the runs.
        other: the other run.
    """
    # A missing fold would not be equal to another missing fold.
    keyed = rows.assign(fold=rows["fold"].astype("Int64").fillna(-1), value=_numbers(rows, metric))
    keyed = keyed[np.isfinite(keyed["value"])].set_index(["seed", "fold"])
    ours, theirs = keyed[keyed["run"] == run], keyed[keyed["run"] == other]
    both = ours.merge(theirs, left_index=True, right_index=True, suffixes=("", "_other")).sort_index()
    same = both["data"].eq(both["data_other"]) & both["split"].eq(both["split_other"])
    both = both[same | metric.is_ratio]
    return both["value"], both["value_other"]


def _numbers(rows: pd.DataFrame, metric: ComparedMetric) -> "pd.Series[float]":
    values = rows[metric.column].astype(float)
    # Logarithms turn ratios into differences.
    return values.where(values > 0).map(np.log) if metric.is_ratio else values


def _tested_samples(
    metric: ComparedMetric, run: str, other: str, values: "pd.Series[float]", sample_values: SampleValues
) -> PairedTest | None:
    if metric.is_ratio or metric.is_validation or values.empty:
        return None
    seed, fold = values.index[0]
    ours, theirs = (
        sample_values((name, int(seed), None if fold < 0 else int(fold)), metric.column)
        for name in (run, other)
    )
    return None if ours is None or theirs is None or len(ours) != len(theirs) else sample_test(ours, theirs)


def _untested(values: "pd.Series[float]", others: "pd.Series[float]") -> PairedTest:
    return paired_test((values - others).to_list()[:1])
