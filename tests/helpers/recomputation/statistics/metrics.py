"""The metrics by which runs are compared, and the value of each training."""

import json
import math
from dataclasses import dataclass

from helpers.recomputation.raw import Job, Trainings

NO_METRICS = ("samples", "accuracy", "loss")
LARGER, SMALLER = ("accuracy", "r2"), ("loss", "mae", "mse", "huber", "cross_entropy")
SPEEDS = {"seconds": "training time", "samples_per_second": "samples per second"}


@dataclass(frozen=True)
class Metric:
    """A column of summary.csv; times and speeds are compared by the differences of their logarithms."""

    column: str

    @property
    def is_ratio(self) -> bool:
        return self.column in SPEEDS

    @property
    def is_accuracy(self) -> bool:
        return self.column.endswith("accuracy")

    @property
    def is_validation(self) -> bool:
        return self.column.startswith("val_")

    @property
    def larger_is_better(self) -> "bool | None":
        if self.column == "samples_per_second" or self.column.endswith(LARGER):
            return True
        return False if self.column == "seconds" or self.column.endswith(SMALLER) else None

    @property
    def words(self) -> str:
        """The metric as a reader finds it on the page."""
        name = self.column.removeprefix("val_").replace("_", " ")
        return SPEEDS.get(self.column) or f"{'validation' if self.is_validation else 'test'} {name}"

    def value(self, job: Job) -> float:
        """Return the value of a training on the scale of the test; NaN if it has none."""
        if self.is_ratio:
            return math.log(raw_value(self.column, job))
        return raw_value(self.column, job)

    def samples(self, job: Job) -> int:
        """Return the number of samples of the value."""
        return int(job.validation_samples if self.is_validation else job.evaluation["samples"])


def raw_value(column: str, job: Job) -> float:
    """Return a number of a training by its column of summary.csv; NaN if it has none."""
    if column == "seconds":
        return float(job.summary["training_seconds"])
    if column == "samples_per_second":
        return float(job.summary["samples_per_second"])
    if column.startswith("val_") and f"{column}_min" in job.published:
        # Of the mean of the nodes' models, which no table has; tests/train/evaluation recomputes it.
        return float(job.summary["final"][column])
    if column.endswith("_mean") and f"{column.removesuffix('_mean')}_min" in job.published:
        return float(job.published[column.removesuffix("_mean")])
    found = job.published if column.startswith("val_") else job.evaluation
    return float(found.get(column, math.nan))


def compared_metrics(raw: Trainings) -> list[Metric]:
    """Return the metrics of the comparison, the headline's metric first."""
    # The critic of each GAN measures only its own generator.
    quality = [] if raw.problem == "gan" else _common_metrics(raw)
    folds = raw.jobs[0].summary["fold"] is not None
    found = [Metric(f"val_{name}" if folds else name) for name in quality]
    return [*found, *([] if raw.mixed_clocks else map(Metric, SPEEDS))]


def _common_metrics(raw: Trainings) -> list[str]:
    evaluations = [job.evaluation for job in raw.jobs]
    names = [
        name
        for name, value in evaluations[0].items()
        if name not in NO_METRICS and isinstance(value, float) and all(name in each for each in evaluations)
    ]
    accuracy = ["accuracy"] if raw.accuracy else []
    return [*accuracy, *names, *(["loss"] if len({loss_function(job) for job in raw.jobs}) == 1 else [])]


def loss_function(job: Job) -> str:
    """Return the settings that change the loss, as text."""
    config = job.summary["config"]
    return json.dumps([config["loss"], config.get("loss_weights") or {}, config["problem"]], sort_keys=True)


def ranking_metric(raw: Trainings) -> "Metric | None":
    """Return the metric of the headline: the first with a known direction; None for GANs."""
    known = [metric for metric in compared_metrics(raw) if not metric.is_ratio]
    return next((metric for metric in known if metric.larger_is_better is not None), None)
