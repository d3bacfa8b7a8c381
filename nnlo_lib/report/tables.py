"""Finished jobs of a report, their summary (summary.csv, one row per job), and statistics over the jobs of a run."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from nnlo_lib.core.atomic_file import atomic_write
from nnlo_lib.core.errors import UserError
from nnlo_lib.state.finished_run import FinishedRun, read_table

KEY = ("run", "seed", "fold")
COLUMNS = (*KEY, "accuracy", "loss", "seconds", "samples_per_second", "bytes_sent")
LAST = ("epochs", "ranks", "restarts", "transport", "ended_early")
# What the results of a job were measured on, and by which loss: only equal ones can be compared.
MEASURED = (
    "problem", "loss_function", "data", "split", "samples", "training_samples", "validation_samples",
    "weights_chosen_by",
)  # fmt: skip
NOT_METRICS = {"samples", "accuracy", "loss", "classes"}
# Of the classes; labels of two classes, three quarters in one, are as many as 1.6 equal classes.
IMBALANCED = 0.8


def load_jobs(folders: Iterable[Path]) -> list[FinishedRun]:
    """Read job folders in the order given. Raises UserError if no folder is given or a job occurs twice."""
    jobs: dict[tuple[str, int, int | None], FinishedRun] = {}
    for folder in folders:
        job = FinishedRun(folder)
        # Both files are read at once, so that a damaged one is found before any work.
        _ = job.summary, job.evaluation
        if job.key in jobs:
            raise UserError(
                f"{job.folder} and {jobs[job.key].folder} contain the same run, seed and fold; pass only one of them"
            )
        jobs[job.key] = job
    if not jobs:
        raise UserError("no job folder given; pass one or more folders results/<experiment>/<run>/seed-<s>")
    return list(jobs.values())


def group_by_run(jobs: Iterable[FinishedRun]) -> dict[str, list[FinishedRun]]:
    """Group jobs by run, runs in order of first appearance."""
    groups: dict[str, list[FinishedRun]] = {}
    for job in jobs:
        groups.setdefault(job.run, []).append(job)
    return groups


def summarize(jobs: Sequence[FinishedRun]) -> pd.DataFrame:
    """Return one row per job, in the order given; columns: COLUMNS, other test metrics, `val_*`, LAST, MEASURED."""
    # Int64 allows missing values; by default, pandas would turn all folds into floats if one is missing.
    table = pd.DataFrame([_row(job) for job in jobs]).astype({"fold": "Int64"})
    fixed = (*COLUMNS, *LAST, *MEASURED)
    others = [name for name in table if name not in fixed]
    return table[[*COLUMNS, *others, *LAST, *MEASURED]]


def _row(job: FinishedRun) -> dict[str, object]:
    summary, evaluation, problem = job.summary, job.evaluation, job.config_section("problem")
    others = {
        name: math.nan if value is None else value
        for name, value in evaluation.items()
        if name not in NOT_METRICS and isinstance(value, int | float | None)
    }
    config = summary["config"]
    loss = [config.get("loss"), config.get("loss_weights") or {}, problem]
    # Keys of `train` whose rule watches a validation metric: `early_stopping, restore_best`.
    rules = job.config_section("train").items()
    metrics = {key: rule.get("metric") if isinstance(rule, dict) else rule for key, rule in rules}
    choosing = ", ".join(sorted(key for key, metric in metrics.items() if str(metric).startswith("val_")))
    return {
        **_balanced_accuracy(evaluation.get("confusion") or []),
        **others,
        **{name: value for name, value in summary.get("final", {}).items() if name.startswith("val_")},
        **dict(zip(KEY, job.key, strict=True)),
        "accuracy": evaluation.get("accuracy"),
        "loss": math.nan if evaluation.get("loss") is None else evaluation["loss"],
        "seconds": job.training_seconds,
        "samples_per_second": summary["samples_per_second"],
        "bytes_sent": sum(summary["bytes_sent"].values()),
        "epochs": summary.get("epochs"),
        "ranks": summary.get("ranks"),
        "restarts": job.restarts,
        "transport": job.transport,
        "ended_early": summary.get("ended_early") or math.nan,
        "problem": problem.get("name") or problem.get("class") or "classification",
        # The settings of the problem belong to the loss: label smoothing, for example.
        "loss_function": json.dumps(loss, sort_keys=True),
        # First, because a summary of another version may lack the fingerprint, too.
        "training_samples": job.recorded("training_samples"),
        "data": job.recorded("data")["fingerprint"][:12],
        "split": evaluation.get("split", "test"),
        "samples": evaluation["samples"],
        "validation_samples": job.recorded("validation_samples"),
        "weights_chosen_by": choosing or math.nan,
    }


def _balanced_accuracy(confusion: Sequence[Sequence[int]]) -> dict[str, float]:
    """Return the mean over the classes of the fraction that is right, if the accuracy hides what becomes of rare classes."""
    counts = [sum(row) for row in confusion if sum(row)]
    if sum(counts) ** 2 >= IMBALANCED * len(counts) * sum(count**2 for count in counts):
        return {}
    right = [row[place] / sum(row) for place, row in enumerate(confusion) if sum(row)]
    return {"balanced_accuracy": sum(right) / len(right)}


def write_summary(table: pd.DataFrame, path: Path) -> None:
    """Write a summary as CSV atomically (temporary file, then rename)."""
    with atomic_write(path) as part:
        # The same bytes on all systems, instead of the line ends of the system.
        table.to_csv(part, index=False, lineterminator="\n")


def read_summary(path: Path, jobs: Sequence[FinishedRun]) -> pd.DataFrame:
    """Read a summary. Raises UserError if it is damaged or its rows are not exactly `jobs` in this order."""
    table = read_table(path, (*COLUMNS, *LAST, *MEASURED)).astype({"fold": "Int64"})
    # A missing fold is NA in the table, but None in `job.key`.
    keys = [(run, seed, None if pd.isna(fold) else fold) for run, seed, fold in table[list(KEY)].to_numpy()]
    if keys != [job.key for job in jobs]:
        raise UserError(
            f"{path}: the rows do not match the given jobs; write it again with `nnlo task aggregate`"
        )
    return table


@dataclass(frozen=True)
class Spread:
    """Mean and sample standard deviation of a quantity over `count` jobs of a run; `std` of one job is NaN."""

    mean: float
    std: float
    count: int


def spread_by_run(table: pd.DataFrame, column: str) -> dict[str, Spread]:
    """Return the spread of a column for each run that has values in it, in order of first appearance."""
    # Infinite values have no mean; like NaN, they do not count.
    finite = table.assign(value=table[column].astype(float).replace([math.inf, -math.inf], math.nan))
    groups = finite.groupby("run", sort=False)["value"].agg(["mean", "std", "count"])
    present = groups[groups["count"] > 0]
    return {str(run): Spread(row["mean"], row["std"], int(row["count"])) for run, row in present.iterrows()}


def first_and_equal(values: Mapping[str, Spread], highest: bool) -> list[str]:
    """Return the run with the highest (or lowest) mean, and the runs whose mean equals it."""
    ranked = sorted(values, key=lambda run: values[run].mean, reverse=highest)
    # Means of the same numbers may differ in their last bits.
    return [run for run in ranked if math.isclose(values[run].mean, values[ranked[0]].mean, rel_tol=1e-12)]


def spread_of(values: Sequence[float]) -> Spread:
    """Return the spread of one or more values."""
    known = pd.Series(values, dtype=float)
    return Spread(known.mean(), known.std(), len(values))


def test_metrics(table: pd.DataFrame) -> list[str]:
    """Return the columns of test metrics other than accuracy and loss."""
    known = (*COLUMNS, *LAST, *MEASURED)
    return [name for name in map(str, table) if name not in known and not name.startswith("val_")]
