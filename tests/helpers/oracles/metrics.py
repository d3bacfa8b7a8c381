"""Metrics of whole data sets by scikit-learn, or by a definition that scikit-learn lacks."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from sklearn import metrics

from helpers.oracles.losses import (
    CHANCES,
    CLASSIFICATION,
    DENSITY,
    LOSS_ORACLES,
    REGRESSION,
    Draw,
    between,
    binary,
    classes,
    pairs,
    scores,
    shares,
    switches,
)

TOLERANCE = 1e-12
ACCURACY = "sklearn.metrics.accuracy_score"
TOP_K = "sklearn.metrics.top_k_accuracy_score"
RANK = "definition: of equal outputs, the lower class is first; a sample with NaN is wrong"


@dataclass(frozen=True)
class MetricOracle:
    """Settings of a metric and its reference."""

    problem: dict[str, Any]  # problem with its settings
    metric: str
    draw: Draw  # returns random outputs and labels
    reference: str  # name of the reference, as the documentation shows it
    value: Callable[[Any, Any], float]  # value over all samples, from outputs and labels
    loss: str = ""  # loss of the run, which decides on the threshold; empty for the default

    def sample(self, number: int, count: int) -> tuple[Any, Any]:
        """Return random outputs and labels."""
        return self.draw(np.random.default_rng(number), count)


def accuracy(outputs: Any, labels: Any) -> float:
    """Return scikit-learn's accuracy of the highest outputs."""
    return float(metrics.accuracy_score(labels, outputs.argmax(1)))


def balanced(outputs: Any, labels: Any) -> float:
    """Return scikit-learn's balanced accuracy of the highest outputs."""
    return float(metrics.balanced_accuracy_score(labels, outputs.argmax(1)))


def decided(outputs: Any, labels: Any, threshold: float) -> float:
    """Return scikit-learn's accuracy of all decisions by a threshold."""
    return float(metrics.accuracy_score(labels.ravel() > 0.5, outputs.ravel() > threshold))


def decided_of_classes(outputs: Any, labels: Any, threshold: float) -> float:
    """Return scikit-learn's accuracy of one decision for each class."""
    return decided(outputs, np.eye(outputs.shape[1])[labels], threshold)


def top_k(outputs: Any, labels: Any, k: int) -> float:
    """Return scikit-learn's top-k accuracy of different outputs."""
    return float(metrics.top_k_accuracy_score(labels, outputs, k=k, labels=range(outputs.shape[1])))


def ranked(outputs: Any, labels: Any, k: int) -> float:
    """Return the share of samples without NaN of which fewer than k classes come before the label."""
    hits = 0
    for row, label in zip(outputs, labels, strict=True):
        order = sorted(range(len(row)), key=lambda place: (-row[place], place))
        hits += not np.isnan(row).any() and label in order[:k]
    return hits / len(labels)


def decided_without_nan(outputs: Any, labels: Any) -> float:
    """Return the share of decisions that are right, NaN being wrong."""
    right = ((outputs > 0) == (labels > 0.5)) & ~np.isnan(outputs)
    return float(right.mean())


def ties(drawn: np.random.Generator, count: int) -> Any:
    """Return scores with many equal ones."""
    return drawn.integers(0, 3, (count, 6)).astype(float)


def equal(drawn: np.random.Generator, count: int) -> Any:
    """Return scores that are all equal, as of a model with weights of 0."""
    return np.zeros((count, 6))


def broken(drawn: np.random.Generator, count: int, outputs: int = 6) -> Any:
    """Return scores with NaN and infinite values."""
    values = ties(drawn, count)[:, :outputs] - 1
    places = drawn.random(values.shape)
    return np.where(places < 0.1, np.nan, np.where(places < 0.2, np.inf, values))


def single_class(drawn: np.random.Generator, count: int) -> Any:
    """Return labels that are all the class 2."""
    return np.full(count, 2)


def rare(drawn: np.random.Generator, count: int) -> Any:
    """Return labels of classes 0 and 3, of which the second is rare."""
    return 3 * (drawn.random(count) < 0.1)


six = partial(classes, number=6)
one = {"outputs": 1}
METRIC_ORACLES = {
    "accuracy": MetricOracle(CLASSIFICATION, "accuracy", pairs(scores, classes), ACCURACY, accuracy),
    "accuracy, probabilities": MetricOracle(CHANCES, "accuracy", pairs(shares, classes), ACCURACY, accuracy),
    "accuracy, one class": MetricOracle(CLASSIFICATION, "accuracy", pairs(scores, single_class), ACCURACY, accuracy),
    "accuracy, one score": MetricOracle(
        CLASSIFICATION, "accuracy", pairs(scores, binary, **one), ACCURACY, partial(decided, threshold=0), "binary_cross_entropy"
    ),
    "accuracy, one probability": MetricOracle(
        CHANCES, "accuracy", pairs(between, binary, **one), ACCURACY, partial(decided, threshold=0.5), "binary_cross_entropy"
    ),
    "accuracy, one number": MetricOracle(
        CLASSIFICATION, "accuracy", pairs(scores, binary, **one), ACCURACY, partial(decided, threshold=0.5), "mse"
    ),
    **{
        f"balanced_accuracy{name}": MetricOracle(
            CLASSIFICATION, "balanced_accuracy", pairs(scores, drawn), "sklearn.metrics.balanced_accuracy_score", balanced
        )
        for name, drawn in (("", classes), (", rare classes", rare), (", one class", single_class))
    },
    "accuracy, ties": MetricOracle(CLASSIFICATION, "accuracy", pairs(ties, six), RANK, partial(ranked, k=1)),
    "accuracy, NaN": MetricOracle(CLASSIFICATION, "accuracy", pairs(broken, six), RANK, partial(ranked, k=1), "mae"),
    "accuracy, NaN of one score": MetricOracle(
        CLASSIFICATION, "accuracy", pairs(broken, binary, **one), RANK,
        lambda outputs, labels: decided_without_nan(outputs, labels[:, None]), "hinge",
    ),
    **{
        f"top{k}_accuracy, {name}": MetricOracle(CLASSIFICATION, f"top{k}_accuracy", pairs(*drawn), *value)
        for k in (1, 2, 3, 5)
        for name, drawn, value in (
            ("scores", (partial(scores, outputs=6), six), (TOP_K, partial(top_k, k=k))),
            ("ties", (ties, six), (RANK, partial(ranked, k=k))),
            ("equal", (equal, six), (RANK, partial(ranked, k=k))),
            ("NaN", (broken, six), (RANK, partial(ranked, k=k), "mae")),
        )
    },
    "top5_accuracy, four classes": MetricOracle(
        CLASSIFICATION, "top5_accuracy", pairs(scores, classes), RANK, lambda outputs, labels: 1.0
    ),
    "binary_accuracy": MetricOracle(
        CLASSIFICATION, "binary_accuracy", pairs(scores, switches), ACCURACY, partial(decided, threshold=0), "binary_cross_entropy"
    ),
    "binary_accuracy, probabilities": MetricOracle(
        CHANCES, "binary_accuracy", pairs(between, partial(switches, outputs=3), outputs=3), ACCURACY,
        partial(decided, threshold=0.5), "binary_cross_entropy",
    ),
    "binary_accuracy, classes": MetricOracle(
        CLASSIFICATION, "binary_accuracy", pairs(partial(scores, outputs=3), partial(classes, number=3)), ACCURACY,
        partial(decided_of_classes, threshold=0.5), "mse",
    ),
    "binary_accuracy, NaN": MetricOracle(
        CLASSIFICATION, "binary_accuracy", pairs(broken, partial(switches, outputs=6)), "definition: NaN is wrong",
        decided_without_nan, "binary_cross_entropy",
    ),
    "binary_accuracy of numbers": MetricOracle(
        REGRESSION, "binary_accuracy", pairs(partial(scores, outputs=3), partial(switches, outputs=3)), ACCURACY,
        partial(decided, threshold=0.5), "mse",
    ),
    "binary_accuracy of densities": MetricOracle(
        DENSITY, "binary_accuracy", pairs(between, between), ACCURACY, partial(decided, threshold=0.5), "binary_cross_entropy"
    ),
    "mse, constant target": MetricOracle(
        REGRESSION, "mse", pairs(scores, lambda drawn, count: np.full((count, 4), 3.0)), "sklearn.metrics.mean_squared_error",
        lambda outputs, labels: float(metrics.mean_squared_error(labels, outputs)),
    ),
    "mse, NaN": MetricOracle(
        REGRESSION, "mse", pairs(lambda drawn, count: np.full((count, 4), np.nan), scores), "definition: NaN", lambda outputs, labels: np.nan
    ),
    **{
        f"{name}, metric": MetricOracle(oracle.problem, oracle.loss, oracle.draw, oracle.reference, oracle.mean, "mse")
        for name, oracle in LOSS_ORACLES.items()
        if oracle.mean and "delta" not in name
    },
}  # fmt: skip


def references() -> Iterator[tuple[str, str, str]]:
    """Yield (problem, metric, references) of each metric."""
    found: dict[tuple[str, str], dict[str, None]] = {}
    for each in METRIC_ORACLES.values():
        found.setdefault((each.problem["name"], each.metric), {})[each.reference] = None
    for names, references_of_metric in found.items():
        yield *names, "; ".join(references_of_metric)
