"""The metrics by which runs are compared: their columns in the summary, directions and error models."""

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from nnlo_lib.config.metrics import metric_direction
from nnlo_lib.report.tables import test_metrics


@dataclass(frozen=True)
class ComparedMetric:
    """A metric by which runs are compared.

    Attributes:
        column: column of the summary.
        highest: whether the highest value is best; None if the direction is unknown, for a user's metric.
        is_ratio: whether runs are compared by the ratio of their values instead of the difference.
        split: name of the evaluated samples.
    """

    column: str
    highest: bool | None
    is_ratio: bool = False
    split: str = "test"

    @property
    def is_accuracy(self) -> bool:
        """Whether the values are shares of correct samples."""
        return self.column.endswith("accuracy")

    @property
    def is_validation(self) -> bool:
        """Whether the values belong to the validation samples instead of the test samples."""
        return self.column.startswith("val_")

    @property
    def name(self) -> str:
        """The metric without its split."""
        return self.column.removeprefix("val_")

    @property
    def words(self) -> str:
        """The metric with its samples: `test accuracy`, `validation loss`."""
        return f"{'validation' if self.is_validation else self.split} {self.name}".replace("_", " ")

    def overlap(self, rows: pd.DataFrame) -> float:
        """Return evaluated samples divided by training samples if each job has its own split, else 0."""
        if self.is_ratio:
            return 0.0
        own = rows["validation_samples"] if self.is_validation else rows["samples"]
        # A test split and a validation split of the data set are the same for all jobs.
        if not self.is_validation and not (rows["split"] == "held back").all():
            return 0.0
        return float((own / rows["training_samples"]).mean())

    def step(self, rows: pd.DataFrame) -> float:
        """Return the distance between neighboring values: 1/samples for an accuracy, else 0."""
        samples = float(rows["validation_samples" if self.is_validation else "samples"].mean())
        return 1 / samples if self.is_accuracy and samples > 0 else 0.0


SPEEDS = (
    ComparedMetric("seconds", False, is_ratio=True),
    ComparedMetric("samples_per_second", True, is_ratio=True),
)


def quality_metrics(table: pd.DataFrame) -> list[ComparedMetric]:
    """Return the metrics that say which run has the better model; the first ranks the runs.

    The accuracy comes first, then the other metrics that all jobs have, then the loss if all jobs have the same
    loss function. With folds, metrics of the validation folds are compared: test results of models that share most
    of their training samples vary less than new data would make them vary. Runs of GANs have no such metric,
    because each critic measures only its own generator.
    """
    if table["problem"].eq("gan").any():
        return []
    first = ["accuracy"] if table["accuracy"].notna().any() else []
    common = [name for name in test_metrics(table) if table[name].notna().all()]
    losses = ["loss"] if table["loss_function"].nunique(dropna=False) == 1 else []
    found = [
        ComparedMetric(name, _highest(name), split=evaluated_split(table))
        for name in (*first, *common, *losses)
    ]
    if table["fold"].isna().any():
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
    """Return the number of a run's jobs with a finite value, and the number of all its jobs.

    Args:
        table: summary with one row per job.
        metric: the metric.
        run: name of the run.
    """
    values = table.loc[table["run"] == run, metric.column].astype(float)
    return int(np.isfinite(values).sum()), len(values)


def _highest(name: str) -> bool | None:
    direction = metric_direction(name)
    return None if direction is None else direction == "larger"
