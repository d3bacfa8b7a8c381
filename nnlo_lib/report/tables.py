"""The summary of an experiment (one row per job) and statistics over the jobs of a run."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from nnlo_lib.config.stopping import better_direction
from nnlo_lib.core.atomic_file import atomic_write
from nnlo_lib.core.errors import UserError
from nnlo_lib.state.finished_run import FinishedRun
from nnlo_lib.state.published_file import read_table

KEY = ("run", "seed", "fold")
COLUMNS = (*KEY, "accuracy", "loss", "seconds", "samples_per_second", "bytes_sent")
LAST = ("epochs", "ranks", "restarts", "transport", "ended_early")
NOT_METRICS = {"samples", "accuracy", "loss"}


@dataclass(frozen=True)
class Spread:
    """Mean and sample standard deviation of a quantity over the jobs of a run; `std` of one job is NaN."""

    mean: float
    std: float
    count: int

    def beats(self, other: "Spread", highest: bool) -> bool:
        """Return True if this mean is better than the other by more than sqrt(std^2 + other.std^2).

        This is the standard deviation of the difference of two single jobs, not of the two means. Return
        False if a standard deviation is unknown.
        """
        # A comparison with NaN is False, so that a single job never beats another one.
        gain = (self.mean - other.mean) * (1 if highest else -1)
        return gain > math.hypot(self.std, other.std)


def summarize(jobs: Sequence[FinishedRun]) -> pd.DataFrame:
    """Return one row per job, in the order given; columns: COLUMNS, other test metrics, `val_*`, LAST."""
    # Int64 allows missing values; by default, pandas would turn all folds into floats if one is missing.
    rows = pd.DataFrame([_test(job) for job in jobs], columns=list(COLUMNS)).astype({"fold": "Int64"})
    extra = pd.DataFrame([_extra_results(job) for job in jobs])
    return pd.concat([rows, extra[[name for name in extra if name not in LAST] + list(LAST)]], axis=1)


def write_summary(table: pd.DataFrame, path: Path) -> None:
    """Write a summary as CSV atomically (temporary file, then rename)."""
    with atomic_write(path) as part:
        # The same bytes on all systems, instead of the line ends of the system.
        table.to_csv(part, index=False, lineterminator="\n")


def read_summary(path: Path, jobs: Sequence[FinishedRun]) -> pd.DataFrame:
    """Read a summary. Raises UserError if it is damaged or its rows are not exactly `jobs` in this order."""
    table = read_table(path, (*COLUMNS, "epochs", "ranks", "restarts")).astype({"fold": "Int64"})
    # A missing fold is NA in the table, but None in `job.key`.
    keys = [(run, seed, None if pd.isna(fold) else fold) for run, seed, fold in table[list(KEY)].to_numpy()]
    if keys != [job.key for job in jobs]:
        raise UserError(
            f"{path}: the rows do not match the given jobs; recreate the file with scripts/aggregate.py"
        )
    return table


def spread_by_run(table: pd.DataFrame, column: str) -> dict[str, Spread]:
    """Return the spread of a column for each run that has values in it, in order of first appearance."""
    groups = table.groupby("run", sort=False)[column].agg(["mean", "std", "count"])
    present = groups[groups["count"] > 0]
    return {str(run): Spread(row["mean"], row["std"], int(row["count"])) for run, row in present.iterrows()}


def test_metrics(table: pd.DataFrame) -> list[str]:
    """Return the columns of test metrics other than accuracy and loss."""
    known = (*COLUMNS, *LAST)
    return [name for name in map(str, table) if name not in known and not name.startswith("val_")]


def ranking_metric(table: pd.DataFrame) -> tuple[str, bool]:
    """Return the column by which runs are ranked, and True if its highest value is best.

    The column is the accuracy if a job has one, else the first metric that all jobs have, else the loss. The
    loss comes last because the jobs may use different loss functions.
    """
    if table["accuracy"].notna().any():
        return "accuracy", True
    common = [name for name in test_metrics(table) if table[name].notna().all()]
    return (common[0], better_direction(common[0]) == "larger") if common else ("loss", False)


def spread_of(values: Sequence[float]) -> Spread:
    """Return the spread of one or more values."""
    known = pd.Series(values, dtype=float)
    return Spread(known.mean(), known.std(), len(values))


def leaders(values: dict[str, Spread], highest: bool) -> list[str]:
    """Return the run with the best mean, then each run whose mean is not worse by more than the spread."""
    ranked = sorted(values, key=lambda run: values[run].mean, reverse=highest)
    return [run for run in ranked if run == ranked[0] or not values[ranked[0]].beats(values[run], highest)]


def _test(job: FinishedRun) -> dict[str, object]:
    summary, evaluation = job.summary, job.evaluation
    return {
        **dict(zip(KEY, job.key, strict=True)),
        "accuracy": evaluation.get("accuracy"),
        "loss": evaluation.get("loss"),
        "seconds": summary["seconds"]["total"],
        "samples_per_second": summary["samples_per_second"],
        "bytes_sent": sum(summary["bytes_sent"].values()),
    }


def _extra_results(job: FinishedRun) -> dict[str, object]:
    summary = job.summary
    others = {name: value for name, value in job.evaluation.items() if _is_metric(name, value)}
    validation = {name: value for name, value in summary.get("final", {}).items() if name.startswith("val_")}
    last = {name: summary.get(name) for name in LAST} | {"transport": job.transport}
    ended = summary.get("ended_early") or math.nan
    return {**others, **validation, **last, "restarts": summary.get("restarts", 0), "ended_early": ended}


def _is_metric(name: str, value: object) -> bool:
    return name not in NOT_METRICS and isinstance(value, int | float)
