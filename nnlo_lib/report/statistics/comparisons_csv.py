"""Comparisons of all runs by all metrics, and their table comparisons.csv."""

import math
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from nnlo_lib.core.atomic_file import atomic_write
from nnlo_lib.report.statistics.compared_metric import SPEEDS, quality_metrics
from nnlo_lib.report.statistics.run_comparison import JobKey, RunComparison, compare_runs
from nnlo_lib.report.statistics.sample_test import Values
from nnlo_lib.state.finished_run import FinishedRun

COLUMNS = (
    "metric", "run", "other", "scale", "difference", "low", "high", "p_value", "p_holm", "better", "pairs_are",
    "pairs", "left_out", "more_seeds",
)  # fmt: skip


def compare_all(table: pd.DataFrame, jobs: Sequence[FinishedRun]) -> dict[str, list[RunComparison]]:
    """Return the comparisons of all pairs of runs by the column of each metric, the ranking metric first.

    Each metric is a family of tests of its own: its verdicts are wrong with at most 5 % probability.

    Args:
        table: summary with one row per job.
        jobs: the jobs of the rows.
    """
    folders = {job.key: job for job in jobs}

    def sample_values(key: JobKey, column: str) -> Values | None:
        return folders[key].sample_metrics.get(column)

    # Seconds of a virtual clock and of a measured one cannot be compared.
    speeds = SPEEDS if table["transport"].eq("simulated").nunique() == 1 else ()
    metrics = (*quality_metrics(table), *speeds)
    return {metric.column: compare_runs(table, metric, sample_values) for metric in metrics}


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
