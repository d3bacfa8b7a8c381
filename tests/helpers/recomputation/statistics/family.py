"""The comparisons of all pairs of runs by one metric, with Holm's correction."""

import math
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations
from statistics import fmean

import numpy as np

from helpers.recomputation.raw import Job, Trainings
from helpers.recomputation.statistics.metrics import Metric
from helpers.recomputation.statistics.paired import (
    LEVEL,
    POWER,
    Tested,
    bootstrap,
    holm,
    mcnemar,
    power,
    single,
    t_test,
)

Key = tuple[int, "int | None"]  # seed and fold


@dataclass(frozen=True)
class Comparison:
    """The test of a pair of runs; `kind` is what its pairs are: seeds, folds or samples."""

    metric: Metric
    run: str
    other: str
    kind: str
    test: Tested
    left_out: int
    is_random: bool = False  # the test draws resamples
    p_holm: float = math.nan
    family: int = 0  # number of tests that are corrected together

    @property
    def differs(self) -> bool:
        return self.p_holm <= LEVEL

    @property
    def better(self) -> str:
        """The better run, or an empty text."""
        larger = self.metric.larger_is_better
        if not self.differs or larger is None:
            return ""
        return self.run if (self.test.mean > 0) == larger else self.other

    def sign(self, run: str) -> int:
        """Return 1 for the difference run - other, and -1 for other - run."""
        return 1 if run == self.run else -1

    def suffices(self, more: int) -> bool:
        """Return whether a number of further seeds is the smallest with enough power."""
        effect, level = abs(self.test.mean) / self.test.deviation, LEVEL / self.family
        seeds, tolerance = self.test.pairs + more, 1e-6
        enough = power(effect, seeds, level) >= POWER - tolerance
        return enough and (more == 1 or power(effect, seeds - 1, level) < POWER + tolerance)

    @property
    def needs_seeds(self) -> bool:
        """Whether more seeds, at most 1000, would give a verdict with enough power."""
        if self.kind != "seeds" or self.differs or math.isnan(self.p_holm) or not self.test.mean:
            return False
        return power(abs(self.test.mean) / self.test.deviation, 1000, LEVEL / self.family) >= POWER


@cache
def family(raw: Trainings, metric: Metric) -> list[Comparison]:
    """Return the comparison of each pair of runs."""
    found = [_compared(raw, metric, run, other) for run, other in combinations(raw.runs, 2)]
    found = [_with_random_figures(raw, each) if each.is_random else each for each in found]
    corrected = holm([each.test.p for each in found])
    tests = sum(not math.isnan(p) for p in corrected)
    return [replace(each, p_holm=p, family=tests) for each, p in zip(found, corrected, strict=True)]


def csv_row(raw: Trainings, comparison: Comparison) -> dict[str, str]:
    """Return the row of a comparison in comparisons.csv."""
    key = comparison.metric.column, comparison.run, comparison.other
    [row] = [
        each for each in raw.table("comparisons.csv") if (each["metric"], each["run"], each["other"]) == key
    ]
    return row


def _with_random_figures(raw: Trainings, comparison: Comparison) -> Comparison:
    """Replace the figures of a bootstrap by the file's figures, if they differ no more than resamples do."""
    row, test = csv_row(raw, comparison), comparison.test
    error = test.deviation / math.sqrt(test.pairs)
    low, high, p = (float(row[name]) for name in ("low", "high", "p_value"))
    near = abs(low - test.low) < 0.3 * error and abs(high - test.high) < 0.3 * error
    if near and abs(p - test.p) < 0.005 + 0.3 * test.p:
        return replace(comparison, test=test._replace(low=low, high=high, p=p))
    return comparison


def _compared(raw: Trainings, metric: Metric, run: str, other: str) -> Comparison:
    first, second = ({_key(job): job for job in raw.runs[name]} for name in (run, other))
    values = {
        key: (metric.value(first[key]), metric.value(second[key])) for key in sorted(first.keys() & second)
    }
    values = {key: pair for key, pair in values.items() if np.isfinite(pair).all()}
    left_out = len({*first, *second}) - len(values)
    ours, theirs = np.array(list(values.values())).reshape(-1, 2).T
    jobs = [*first.values(), *second.values()]
    if len(values) > 1 and (_varies(metric, first) or _varies(metric, second)):
        kind = "seeds" if jobs[0].summary["fold"] is None else "folds"
        return Comparison(metric, run, other, kind, _by_jobs(metric, jobs, ours, theirs), left_out)
    # The only pair that is left of several trainings is not tested.
    several = len(values) == 1 and max(len(first), len(second)) > 1
    if not len(values) or several or metric.is_ratio or metric.is_validation:
        difference = float(ours[0] - theirs[0]) if len(values) else math.nan
        return Comparison(metric, run, other, "seeds", single(difference, min(1, len(values))), left_out)
    samples = [each[min(values)].sample_metrics[metric.column] for each in (first, second)]
    is_random = not metric.is_accuracy
    test = (bootstrap if is_random else mcnemar)(*samples)
    return Comparison(metric, run, other, "samples", test, left_out, is_random)


def _varies(metric: Metric, jobs: dict[Key, Job]) -> bool:
    """Return whether trainings differ in the metric or in the loss."""
    return any(len({measure(job) for job in jobs.values()}) > 1 for measure in (metric.value, _loss))


def _loss(job: Job) -> float:
    return float(job.evaluation["loss"])


def _by_jobs(metric: Metric, jobs: list[Job], ours: np.ndarray, theirs: np.ndarray) -> Tested:
    step = 1 / fmean(metric.samples(job) for job in jobs) if metric.is_accuracy else 0.0
    shares = [metric.samples(job) / job.training_samples for job in jobs]
    # Folds have training samples in common; seeds have the same division of the data.
    return t_test(ours, theirs, fmean(shares) if metric.is_validation else 0.0, step)


def _key(job: Job) -> Key:
    return job.summary["seed"], job.summary["fold"]
