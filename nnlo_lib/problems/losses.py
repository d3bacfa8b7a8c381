"""Losses and metrics by name, for outputs as the model returns them and labels as the store holds them."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from nnlo_lib.config.metrics import TOP_K_ACCURACY_PATTERN
from nnlo_lib.config.problem import ClassificationConfig, RegressionConfig
from nnlo_lib.core.errors import USER_CODE_ERRORS, UserError
from nnlo_lib.core.user_code import error_with_source_line, load_user_function
from nnlo_lib.problems import classification_metrics as classes
from nnlo_lib.problems.regression_losses import elementwise

PerSample = Callable[[Tensor, Tensor], Tensor]  # outputs (samples, ...), labels (samples, ...) -> (samples,)


# Losses that pull the outputs to the labels 0 and 1 themselves, instead of below and above 0.
LOSSES_OF_DISTANCE = ("mse", "mae", "huber")


def decision_threshold(problem: ClassificationConfig | RegressionConfig, loss: str) -> float:
    """Return the number above which an output is positive, or a single output is class 1."""
    return 0.5 if problem.outputs == "probabilities" or loss in LOSSES_OF_DISTANCE else 0.0


def loss_by_name(problem: ClassificationConfig | RegressionConfig, name: str) -> PerSample:
    """Return a problem's loss. Raises UserError if a user's function cannot be loaded."""
    smoothing = problem.label_smoothing if isinstance(problem, ClassificationConfig) else 0.0
    return metric_by_name(problem, name, smoothing=smoothing)


def metric_by_name(
    problem: ClassificationConfig | RegressionConfig, name: str, loss: str = "", smoothing: float = 0.0
) -> PerSample:
    """Return a loss or a metric.

    Args:
        problem: settings of the problem.
        name: name of the loss or metric, or `path.py:function`.
        loss: loss of the output that the metric measures.
        smoothing: label smoothing of `cross_entropy`; metrics have none.

    Raises:
        UserError: if a user's function cannot be loaded.
    """
    if ".py:" in name:
        return _from_file(name)
    probabilities, threshold = problem.outputs == "probabilities", decision_threshold(problem, loss)
    if isinstance(problem, RegressionConfig):
        return partial(
            _compared, elementwise(probabilities, threshold, problem.huber_delta)[name], labels_like_outputs
        )
    if found := TOP_K_ACCURACY_PATTERN.fullmatch(name):
        return partial(classes.top_k_accuracy, k=int(found[1]), threshold=threshold)
    if name == "accuracy":
        return partial(classes.accuracy, threshold=threshold)
    if name == "cross_entropy":
        entropy = classes.cross_entropy_of_probabilities if probabilities else classes.cross_entropy
        return partial(entropy, smoothing=smoothing)
    if name == "nll":
        return classes.nll
    return partial(_compared, elementwise(probabilities, threshold)[name], targets_like_outputs)


def labels_like_outputs(outputs: Tensor, labels: Tensor) -> Tensor:
    """Return labels as numbers (samples, k) with the dtype of outputs (samples, k).

    Raises UserError if a sample has more or fewer labels than outputs.
    """
    numbers = labels.reshape(len(labels), -1).to(outputs.dtype)
    if numbers.shape != outputs.shape:
        raise UserError(
            f"the model returns {outputs.shape[1]} numbers per sample, but each sample has {numbers.shape[1]} labels"
        )
    return numbers


def targets_like_outputs(outputs: Tensor, labels: Tensor) -> Tensor:
    """Return the targets of outputs (samples, k): classes become one-hot vectors, or 0 and 1 if k = 1."""
    if labels.dtype != torch.int64 or outputs.shape[1] == 1:
        return labels_like_outputs(outputs, labels)
    return functional.one_hot(labels, outputs.shape[1]).to(outputs.dtype)


def _compared(compare: PerSample, wanted: PerSample, outputs: Tensor, labels: Tensor) -> Tensor:
    flat = outputs.reshape(len(outputs), -1)
    # Differences and logarithms in half precision would lose most of their digits.
    flat = flat.float() if flat.dtype in (torch.float16, torch.bfloat16) else flat
    return compare(flat, wanted(flat, labels))


def _from_file(name: str) -> PerSample:
    try:
        function = load_user_function(name)
    except USER_CODE_ERRORS as error:
        # A UserError ends the run without retries, which would not repair the user's file.
        raise UserError(f"{name} cannot be used: {error_with_source_line(error)}") from error
    return partial(_checked, name, function)


def _checked(name: str, function: PerSample, outputs: Tensor, labels: Tensor) -> Tensor:
    try:
        # A copy, because the metrics compare the outputs with the labels after a loss that changes them in place.
        values = function(outputs, labels.clone())
    except USER_CODE_ERRORS as error:
        raise UserError(f"{name}(outputs, targets) failed: {error_with_source_line(error)}") from error
    # A function that returns the mean over samples would train, but its sums would be wrong.
    if not isinstance(values, Tensor) or values.shape != labels.shape[:1]:
        what = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
        raise UserError(
            f"{name} returned {what}; it must return a tensor with one number for each of {len(labels)} samples"
        )
    return values
