"""Supervised losses with several settings each: formulas in torch, and functions of scikit-learn and SciPy.

Reference values never come from the function of torch that the loss itself calls.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from scipy import special
from sklearn import metrics
from torch import Tensor

TOLERANCE = 1e-12
CLASSES = 4
Draw = Callable[[np.random.Generator, int], tuple[Any, Any]]  # number of samples -> outputs, labels


@dataclass(frozen=True)
class LossOracle:
    """Settings of a loss and its reference."""

    problem: dict[str, Any]  # problem with its settings
    loss: str
    draw: Draw  # returns random outputs and labels
    formula: Callable[[Tensor, Tensor], Tensor]  # loss of each sample, differentiable by torch
    reference: str = ""  # name of the other reference, as the documentation shows it; empty if there is none
    # mean loss by this reference, from outputs and labels
    mean: Callable[[Any, Any], float] | None = field(default=None)

    def sample(self, number: int, count: int, factor: float = 1.0) -> tuple[Tensor, Tensor]:
        """Return random outputs, which require a gradient, and labels."""
        outputs, labels = self.draw(np.random.default_rng(number), count)
        outputs *= 1.0 if self.problem.get("outputs") == "probabilities" else factor
        return torch.tensor(outputs, requires_grad=True), torch.tensor(labels)


# Outputs and labels


def scores(drawn: np.random.Generator, count: int, outputs: int = CLASSES) -> Any:
    """Return scores, (count, outputs), of which the probabilities do not reach the bounds of scikit-learn."""
    return (drawn.normal(size=(count, outputs)) * drawn.choice([0.1, 1.0, 3.0], (count, 1))).clip(-6, 6)


def classes(drawn: np.random.Generator, count: int, number: int = CLASSES) -> Any:
    """Return random classes."""
    return drawn.integers(0, number, count)


def shares(drawn: np.random.Generator, count: int, outputs: int = CLASSES) -> Any:
    """Return rows of positive numbers with sum 1."""
    return drawn.dirichlet(np.ones(outputs), count) * 0.98 + 0.02 / outputs


def between(drawn: np.random.Generator, count: int, outputs: int = CLASSES) -> Any:
    """Return numbers between 0 and 1."""
    return drawn.uniform(0.01, 0.99, (count, outputs))


def switches(drawn: np.random.Generator, count: int, outputs: int = CLASSES) -> Any:
    """Return rows of 0.0 and 1.0."""
    return drawn.integers(0, 2, (count, outputs)).astype(float)


def pairs(model: Any, labels: Any, **options: Any) -> Draw:
    """Return a function that draws outputs, with `options`, and labels."""
    return lambda drawn, count: (model(drawn, count, **options), labels(drawn, count))


one = {"outputs": 1}
binary = partial(classes, number=2)
one_switch, one_between = partial(switches, **one), partial(between, **one)


def one_number(drawn: np.random.Generator, count: int) -> Any:
    """Return targets (count,), as of a data set with one number per sample."""
    return drawn.normal(size=count)


# Formulas


def hot(outputs: Tensor, labels: Tensor) -> Tensor:
    """Return labels like outputs: one-hot rows of classes, numbers of one output, or the rows themselves."""
    if outputs.shape[1] == 1 or labels.dtype != torch.int64:
        return labels.reshape(outputs.shape).double()
    return torch.eye(outputs.shape[1], dtype=torch.float64)[labels]


def entropy(outputs: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
    """Return the cross-entropy of scores with smoothed labels."""
    if outputs.shape[1] == 1:
        positive = hot(outputs, labels)
        labels = torch.cat([1 - positive, positive], 1)
        outputs = torch.cat([torch.zeros_like(outputs), outputs], 1)
    target = (1 - smoothing) * hot(outputs, labels) + smoothing / outputs.shape[1]
    return -(target * (outputs - torch.logsumexp(outputs, 1, keepdim=True))).sum(1)


def entropy_of_shares(outputs: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
    """Return the cross-entropy of probabilities, scaled to sum 1."""
    if outputs.shape[1] == 1:
        outputs = torch.cat([1 - outputs, outputs], 1)
        labels = labels if labels.dtype == torch.int64 else torch.cat([1 - labels, labels], 1)
    return entropy((outputs / outputs.sum(1, keepdim=True)).log(), labels, smoothing)


def entropy_of_decisions(outputs: Tensor, labels: Tensor) -> Tensor:
    """Return the mean over outputs of log(1 + exp(-s)), s the score with the sign of its target, for any target."""
    target = hot(outputs, labels)
    zero = torch.zeros_like(outputs)
    return (target * torch.logaddexp(zero, -outputs) + (1 - target) * torch.logaddexp(zero, outputs)).mean(1)


def entropy_of_chances(outputs: Tensor, labels: Tensor) -> Tensor:
    """Return the mean over outputs of the binary cross-entropy of probabilities."""
    target = hot(outputs, labels)
    return -(target * outputs.log() + (1 - target) * (1 - outputs).log()).mean(1)


def categorical_hinge(outputs: Tensor, labels: Tensor) -> Tensor:
    """Return keras.losses.categorical_hinge."""
    target = hot(outputs, labels)
    right, others = (target * outputs).sum(1), ((1 - target) * outputs).max(1).values
    return torch.relu(others - right + 1)


def margin(outputs: Tensor, labels: Tensor) -> Tensor:
    """Return the hinge loss of one score."""
    return torch.relu(1 - torch.where(labels.reshape(-1) > 0.5, 1.0, -1.0) * outputs[:, 0])


def squares(outputs: Tensor, labels: Tensor) -> Tensor:
    """Return the mean squared error of each sample."""
    return ((outputs - hot(outputs, labels)) ** 2).sum(1) / outputs.shape[1]


def distances(outputs: Tensor, labels: Tensor) -> Tensor:
    """Return the mean absolute error of each sample."""
    return (outputs - hot(outputs, labels)).abs().sum(1) / outputs.shape[1]


def huber(outputs: Tensor, labels: Tensor, delta: float) -> Tensor:
    """Return the loss of Huber 1964, mean over outputs."""
    error = (outputs - hot(outputs, labels)).abs()
    return torch.where(error <= delta, error**2 / 2, delta * error - delta**2 / 2).mean(1)


# Other references


def log_loss(probabilities: Callable[[Any], Any], classes: int = 2) -> Callable[[Any, Any], float]:
    """Return scikit-learn's log_loss of outputs turned into probabilities, those of 2 classes in one column each."""

    def mean(outputs: Any, labels: Any) -> float:
        found = probabilities(outputs)
        found = found if classes > 2 else found.ravel()
        return float(metrics.log_loss(labels.ravel(), found, labels=range(classes)))

    return mean


def hinge_loss(outputs: Any, labels: Any) -> float:
    """Return scikit-learn's hinge_loss, which equals Keras' if one of the other scores is positive."""
    if outputs.shape[1] == 1:
        return float(metrics.hinge_loss(labels, outputs[:, 0], labels=[0, 1]))
    return float(metrics.hinge_loss(labels, outputs, labels=range(CLASSES)))


def of_sklearn(function: Any) -> Callable[[Any, Any], float]:
    """Return a function of scikit-learn's regression metrics on the labels, one-hot if they are classes."""

    def mean(outputs: Any, labels: Any) -> float:
        if labels.dtype.kind == "i":
            labels = np.eye(outputs.shape[1])[labels]
        return float(function(labels.reshape(outputs.shape), outputs))

    return mean


def scipy_huber(outputs: Any, labels: Any, delta: float) -> float:
    """Return the mean of scipy.special.huber."""
    return float(special.huber(delta, outputs - labels.reshape(outputs.shape)).mean())


CLASSIFICATION = {"name": "classification"}
CHANCES = {"name": "classification", "outputs": "probabilities"}
SMOOTH = {"name": "classification", "label_smoothing": 0.1}
SMOOTHER_CHANCES = {"name": "classification", "outputs": "probabilities", "label_smoothing": 0.3}
REGRESSION, DENSITY = {"name": "regression"}, {"name": "regression", "outputs": "probabilities"}
LOG_LOSS, HINGE_LOSS = "sklearn.metrics.log_loss", "sklearn.metrics.hinge_loss"
SQUARED, ABSOLUTE = "sklearn.metrics.mean_squared_error", "sklearn.metrics.mean_absolute_error"
mean_squared, mean_absolute = (
    of_sklearn(metrics.mean_squared_error),
    of_sklearn(metrics.mean_absolute_error),
)
of_scores, of_shares = log_loss(partial(special.softmax, axis=1), CLASSES), log_loss(np.asarray, CLASSES)
of_decisions, of_chances = log_loss(special.expit), log_loss(np.asarray)


def positive_scores(drawn: np.random.Generator, count: int) -> Any:
    """Return scores above 0."""
    return np.abs(scores(drawn, count))


LOSS_ORACLES = {
    "cross_entropy": LossOracle(CLASSIFICATION, "cross_entropy", pairs(scores, classes), entropy, LOG_LOSS, of_scores),
    "cross_entropy, smoothed": LossOracle(SMOOTH, "cross_entropy", pairs(scores, classes), partial(entropy, smoothing=0.1)),
    "cross_entropy, rows": LossOracle(CLASSIFICATION, "cross_entropy", pairs(scores, shares), entropy),
    "cross_entropy, smoothed rows": LossOracle(SMOOTH, "cross_entropy", pairs(scores, shares), partial(entropy, smoothing=0.1)),
    "cross_entropy, probabilities": LossOracle(
        CHANCES, "cross_entropy", pairs(shares, classes), entropy_of_shares, LOG_LOSS, of_shares
    ),
    "cross_entropy, not scaled": LossOracle(CHANCES, "cross_entropy", pairs(between, classes), entropy_of_shares),
    "cross_entropy, smoothed probabilities": LossOracle(
        SMOOTHER_CHANCES, "cross_entropy", pairs(shares, classes), partial(entropy_of_shares, smoothing=0.3)
    ),
    "cross_entropy, one output": LossOracle(
        CLASSIFICATION, "cross_entropy", pairs(scores, binary, **one), entropy, LOG_LOSS, of_decisions
    ),
    "cross_entropy, smoothed one output": LossOracle(
        SMOOTH, "cross_entropy", pairs(scores, binary, **one), partial(entropy, smoothing=0.1)
    ),
    "cross_entropy, one output, shares": LossOracle(CLASSIFICATION, "cross_entropy", pairs(scores, one_between, **one), entropy),
    "cross_entropy, one probability": LossOracle(
        CHANCES, "cross_entropy", pairs(between, binary, **one), entropy_of_shares, LOG_LOSS, of_chances
    ),
    "cross_entropy, one probability, shares": LossOracle(
        CHANCES, "cross_entropy", pairs(between, one_between, **one), entropy_of_shares
    ),
    "nll": LossOracle(CLASSIFICATION, "nll", pairs(scores, classes), lambda outputs, labels: -(hot(outputs, labels) * outputs).sum(1)),
    "nll, log-probabilities": LossOracle(
        CLASSIFICATION, "nll", pairs(lambda drawn, count: np.log(shares(drawn, count)), classes),
        lambda outputs, labels: -(hot(outputs, labels) * outputs).sum(1),
        LOG_LOSS, log_loss(np.exp, CLASSES),
    ),
    "binary_cross_entropy, one output": LossOracle(
        CLASSIFICATION, "binary_cross_entropy", pairs(scores, binary, **one), entropy_of_decisions, LOG_LOSS, of_decisions
    ),
    "binary_cross_entropy, classes": LossOracle(CLASSIFICATION, "binary_cross_entropy", pairs(scores, classes), entropy_of_decisions),
    "binary_cross_entropy, switches": LossOracle(
        CLASSIFICATION, "binary_cross_entropy", pairs(scores, switches), entropy_of_decisions, LOG_LOSS, of_decisions
    ),
    "binary_cross_entropy, probabilities": LossOracle(
        CHANCES, "binary_cross_entropy", pairs(between, switches), entropy_of_chances, LOG_LOSS, of_chances
    ),
    "hinge": LossOracle(CLASSIFICATION, "hinge", pairs(scores, classes), categorical_hinge),
    "hinge, positive scores": LossOracle(
        CLASSIFICATION, "hinge", pairs(positive_scores, classes), categorical_hinge, HINGE_LOSS, hinge_loss
    ),
    "hinge, one output": LossOracle(CLASSIFICATION, "hinge", pairs(scores, binary, **one), margin, HINGE_LOSS, hinge_loss),
    "mse of classes": LossOracle(CLASSIFICATION, "mse", pairs(scores, classes), squares, SQUARED, mean_squared),
    "mae of classes": LossOracle(CLASSIFICATION, "mae", pairs(scores, classes), distances, ABSOLUTE, mean_absolute),
    "mse": LossOracle(REGRESSION, "mse", pairs(scores, scores), squares, SQUARED, mean_squared),
    "mse, one number": LossOracle(REGRESSION, "mse", pairs(scores, one_number, **one), squares, SQUARED, mean_squared),
    "mae": LossOracle(REGRESSION, "mae", pairs(scores, scores), distances, ABSOLUTE, mean_absolute),
    "huber": LossOracle(
        REGRESSION, "huber", pairs(scores, scores), partial(huber, delta=1.0),
        "scipy.special.huber", partial(scipy_huber, delta=1.0),
    ),
    "huber, delta": LossOracle(
        {**REGRESSION, "huber_delta": 0.3}, "huber", pairs(scores, one_number, **one), partial(huber, delta=0.3),
        "scipy.special.huber", partial(scipy_huber, delta=0.3),
    ),
    "binary_cross_entropy of densities": LossOracle(REGRESSION, "binary_cross_entropy", pairs(scores, between), entropy_of_decisions),
    "binary_cross_entropy of probabilities": LossOracle(
        DENSITY, "binary_cross_entropy", pairs(between, one_switch, **one), entropy_of_chances, LOG_LOSS, of_chances
    ),
}  # fmt: skip


def references() -> Iterator[tuple[str, str, str]]:
    """Yield (problem, loss, references) of each loss."""
    found: dict[tuple[str, str], dict[str, None]] = {}
    for each in LOSS_ORACLES.values():
        mine = found.setdefault(
            (each.problem["name"], each.loss), {"formula in torch and its gradient": None}
        )
        mine |= {each.reference: None} if each.reference else {}
    for names, references_of_loss in found.items():
        yield *names, ", ".join(references_of_loss)
