"""Comparison of runs: the metrics, a corrected test of each pair of runs, and trainings that are no better than guessing."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from typing import Any, Literal

import numpy as np
import pandas as pd

from nnlo_lib.config.metrics import LARGER_IS_BETTER_NAMES, metric_direction
from nnlo_lib.problems.set_metrics import guessing
from nnlo_lib.report.formatting import plus_minus, task_listing, task_name
from nnlo_lib.report.statistics.significance import (
    ERROR_RATE,
    MIN_PAIRS,
    PairedTest,
    Values,
    holm,
    more_seeds,
    paired_test,
    sample_test,
    without_verdict,
)
from nnlo_lib.report.tables import Spread, test_metrics
from nnlo_lib.state.finished_run import FinishedRun

SHARES = ("calibration_error", *LARGER_IS_BETTER_NAMES)  # metrics between 0 and 1, beside accuracies
Method = Literal["seeds", "folds", "samples"]  # what the pairs of a test are
JobKey = tuple[str, int, int | None]  # run, seed, fold
SampleValues = Callable[[JobKey, str], Values | None]  # job and column -> a value for each test sample
Rows = Sequence[Mapping[Any, Any]]  # of the summary


@dataclass(frozen=True)
class ComparedMetric:
    """A column of the summary by which runs are compared; `split`: name of the evaluated samples."""

    column: str
    # whether the highest value is best; None if the direction is unknown, for a user's metric
    highest: bool | None
    is_ratio: bool = False  # whether runs are compared by the ratio of their values instead of the difference
    split: str = "test"

    @property
    def is_accuracy(self) -> bool:
        """Whether the values are shares of correct samples."""
        return self.column.endswith("accuracy")

    @property
    def bound(self) -> float:
        """The largest possible difference: 1 for a share of samples or of an area, else infinite."""
        return 1.0 if self.is_accuracy or self.name in SHARES else math.inf

    @property
    def is_validation(self) -> bool:
        """Whether the values belong to the validation samples instead of the test samples."""
        return self.column.startswith("val_")

    @property
    def name(self) -> str:
        """The metric without its split."""
        return self.column.removeprefix("val_")

    def mean_text(self, spread: Spread) -> str:
        """Return the mean over jobs and its deviation as text."""
        return plus_minus(spread, 100, "%") if self.is_accuracy else plus_minus(spread)

    @property
    def words(self) -> str:
        """The metric with its samples: `test accuracy`, `validation loss`."""
        return f"{'validation' if self.is_validation else self.split} {self.name}".replace("_", " ")

    def overlap(self, rows: Rows) -> float:
        """Return evaluated samples divided by training samples if each job has its own split, else 0."""
        # A test split and a validation split of the data set are the same for all jobs.
        is_own = self.is_validation or all(row["split"] == "held back" for row in rows)
        if self.is_ratio or not is_own:
            return 0.0
        return float(np.mean([row[self._samples] / row["training_samples"] for row in rows]))

    def chose_weights(self, rows: Rows) -> bool:
        """Return True if the evaluated samples chose the weights of a job: `restore_best`, for example.

        The best of several validations is better than new samples would be, so that it decides nothing.
        """
        on_test = not self.is_validation and all(row["split"] == "test" for row in rows)
        return not (on_test or self.is_ratio) and any(
            isinstance(row["weights_chosen_by"], str) for row in rows
        )

    def step(self, rows: Rows) -> float:
        """Return the distance between neighboring values: 1/samples for an accuracy, else 0."""
        samples = float(np.mean([row[self._samples] for row in rows]))
        return 1 / samples if self.is_accuracy and samples > 0 else 0.0

    @property
    def _samples(self) -> str:
        return "validation_samples" if self.is_validation else "samples"


SPEEDS = (
    ComparedMetric("seconds", False, is_ratio=True),
    ComparedMetric("samples_per_second", True, is_ratio=True),
)


def quality_metrics(table: pd.DataFrame) -> list[ComparedMetric]:
    """Return the metrics that say which run has the better model; the first ranks the runs.

    The balanced accuracy comes first if all jobs have it, as with imbalanced labels, then the accuracy, the other
    metrics that all jobs have, and the loss if all jobs have the same loss function. With folds, metrics of the
    validation folds are compared: test results of models that share most of their training samples vary less than new
    data would make them vary. If validation samples chose the weights, the test split is used nevertheless, seed by
    seed. Runs of GANs have no such metric, because each critic measures only its own generator.
    """
    if table["problem"].eq("gan").any():
        return []
    names = [name for name in test_metrics(table) if table[name].notna().all()]
    names = ["accuracy", *names] if table["accuracy"].notna().any() else names
    names.sort(key=lambda name: name != "balanced_accuracy")
    names += ["loss"] if table["loss_function"].nunique(dropna=False) == 1 else []
    highest = {"larger": True, "smaller": False, None: None}
    found = [
        ComparedMetric(name, highest[metric_direction(name)], split=evaluated_split(table)) for name in names
    ]
    is_chosen, has_test = table["weights_chosen_by"].notna().any(), (table["split"] == "test").all()
    if table["fold"].isna().any() or (is_chosen and has_test):
        return found
    folds = [replace(metric, column=f"val_{metric.column}") for metric in found]
    return [metric for metric in folds if metric.column in table and table[metric.column].notna().any()]


def ranking_metric(table: pd.DataFrame) -> ComparedMetric | None:
    """Return the metric that ranks the runs, or None if no metric can be compared between them."""
    known = [metric for metric in quality_metrics(table) if metric.highest is not None]
    return next((metric for metric in known if np.isfinite(table[metric.column].astype(float)).any()), None)


def evaluated_split(table: pd.DataFrame) -> str:
    """Return the name of the samples on which all jobs were evaluated: `test` if the jobs differ."""
    splits = set(table["split"])
    return str(splits.pop()).replace("held back", "held-back") if len(splits) == 1 else "test"


def finite_jobs(table: pd.DataFrame, metric: ComparedMetric, run: str) -> tuple[int, int]:
    """Return the number of a run's jobs with a finite value, and the number of all its jobs."""
    values = table.loc[table["run"] == run, metric.column].astype(float)
    return int(np.isfinite(values).sum()), len(values)


@dataclass(frozen=True)
class RunComparison:
    """The test of one pair of runs."""

    metric: ComparedMetric
    run: str
    other: str
    # what the pairs of the test are: jobs with the same seed, with the same seed and fold, or, if the runs share a
    # single job, test samples
    method: Method
    # test of the mean of `run` minus the mean of `other`; for ratios, of the difference of logarithms
    test: PairedTest
    # p-value, corrected for all pairs of runs that are tested by this metric; NaN if not tested
    p_holm: float
    left_out: int  # seeds and folds that only one of the runs has, or with a value that is not finite
    # seeds needed in addition for a verdict; None if there is a verdict or the number is unknown
    more_seeds: int | None
    untested: str = ""  # why the difference is not tested: times not measured together, for example
    differences: tuple[float, ...] = ()  # of each pair, if there are too few of them for a test

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


def compare_runs(
    table: pd.DataFrame,
    metric: ComparedMetric,
    sample_values: SampleValues,
    untested: Callable[[str, str], str] = lambda run, other: "",
) -> list[RunComparison]:
    """Return the test of each pair of runs, in order of first appearance of the runs.

    Jobs are paired by seed and fold: runs share initial weights, splits and order of samples, which cancel in the
    differences. Runs with different data are not paired. Nothing is tested if the evaluated samples chose weights.
    Runs that share a single job are compared by `sample_values`; `untested` returns why a pair of runs is not tested.
    """
    values = table[metric.column].astype(float)
    if metric.is_ratio:  # logarithms turn ratios into differences
        values = values.where(values > 0).map(np.log)
    # The jobs of a run differ; equal results of all seeds are repetitions of one result. Equal accuracies of few samples
    # are no equal results: the losses differ.
    varying = table.groupby("run")[[*{metric.column, "loss"}]].nunique().gt(1).any(axis=1)
    fold = table["fold"].astype("Int64").fillna(-1)
    # Dictionaries, because pandas takes 20 ms for each pair of runs.
    rows = table.assign(fold=fold, value=values, varies=table["run"].map(varying)).to_dict("records")
    pairs = []
    for run, other in combinations(dict.fromkeys(table["run"]), 2):
        both = [row for row in rows if row["run"] in (run, other)]
        pair = _compared_pair(both, metric, run, other, sample_values)
        if why := untested(run, other):
            pair = replace(pair, test=without_verdict(pair.test.difference, pair.test.pairs), untested=why)
        pairs.append(pair)
    adjusted = holm([pair.test.p_value for pair in pairs])
    tested, found = sum(np.isfinite(adjusted)), []
    for pair, p_holm in zip(pairs, adjusted, strict=True):
        is_open = pair.method == "seeds" and p_holm > ERROR_RATE
        needed = more_seeds(pair.test, tested) if is_open else None
        found.append(replace(pair, p_holm=p_holm, more_seeds=needed))
    return found


def _compared_pair(
    rows: Rows, metric: ComparedMetric, run: str, other: str, sample_values: SampleValues
) -> RunComparison:
    """Return the test of a pair of runs, without `p_holm` and `more_seeds`, which depend on the other pairs.

    In `rows`, the jobs of both runs, `fold` is -1 for a job without folds.
    """
    finite = [row for row in rows if math.isfinite(row["value"])]
    ours, theirs = (
        {(row["seed"], row["fold"]): row for row in finite if row["run"] == name} for name in (run, other)
    )
    pairs = [(ours[key], theirs[key]) for key in sorted(ours.keys() & theirs.keys())]
    alike = [
        pair
        for pair in pairs
        if metric.is_ratio or all(pair[0][column] == pair[1][column] for column in ("data", "split"))
    ]
    left_out = len({(row["seed"], row["fold"]) for row in rows}) - len(alike)
    method: Method = "folds" if any(row["fold"] >= 0 for row in rows) else "seeds"
    is_chosen = metric.chose_weights(rows)
    differences = [own["value"] - their["value"] for own, their in alike]
    if by_seed := method == "folds" and not metric.is_validation and not metric.is_ratio:
        # The folds of a seed are tested on the same samples: together they are one observation.
        values = [(own["seed"], own["value"], their["value"]) for own, their in alike]
        means = pd.DataFrame(values, columns=["seed", "own", "their"], dtype=float).groupby("seed").mean()
        method, differences = "seeds", (means["own"] - means["their"]).to_list()
    if len(differences) > 1 and any(row["varies"] for row in rows):
        test = paired_test(differences, metric.overlap(rows), metric.step(rows))
        test = without_verdict(test.difference, test.pairs) if is_chosen else test
        too_few = f"a test needs {MIN_PAIRS} {method}" if len(differences) < MIN_PAIRS else ""
        few = tuple(differences) if too_few else ()
        return RunComparison(metric, run, other, method, test, math.nan, left_out, None, too_few, few)
    of_samples = None
    # The only pair that is left of several jobs does not stand for the jobs that failed.
    is_single = max(Counter(row["run"] for row in rows).values()) == 1 or len(differences) > 1
    if is_single and differences and not (by_seed or is_chosen or metric.is_ratio or metric.is_validation):
        seed, fold = alike[0][0]["seed"], alike[0][0]["fold"]
        key = seed, None if fold < 0 else fold
        own, their = (sample_values((name, *key), metric.column) for name in (run, other))
        if own is not None and their is not None and len(own) == len(their):
            of_samples = sample_test(own, their)
    test, method = of_samples or paired_test(differences[:1]), "samples" if of_samples else "seeds"
    return RunComparison(metric, run, other, method, test, math.nan, left_out, None)


def guessing_sentence(jobs: Sequence[FinishedRun]) -> str:
    """Return sentences that name the trainings at guessing level and say what to try; an empty string if there are none."""
    found: dict[tuple[str, str], list[str]] = {}
    for job in jobs:
        if level := guessing(job.evaluation, partial(getattr, job, "predictions")):
            found.setdefault((level.meaning, level.remedy), []).append(
                f"{task_name(*job.key)} ({level.text})"
            )
    return " ".join(
        f"At guessing level, {meaning}: {task_listing(names)}; {remedy}."
        for (meaning, remedy), names in found.items()
    )
