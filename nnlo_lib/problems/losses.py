"""Losses and metrics by name, for outputs and labels as the model and the store give them."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from nnlo_lib.config import Classification, Regression
from nnlo_lib.config.measures import TOP
from nnlo_lib.errors import UserError
from nnlo_lib.problems import classes
from nnlo_lib.problems.elementwise import elementwise
from nnlo_lib.user_function import last_line, user_function

PerSample = Callable[[Tensor, Tensor], Tensor]  # outputs (samples, ...), labels (samples, ...) -> (samples,)


def loss_of(problem: Classification | Regression, name: str) -> PerSample:
    """Return a problem's loss. Raises UserError if a user's function cannot be read."""
    smoothing = problem.label_smoothing if isinstance(problem, Classification) else 0.0
    return measure_of(problem, name, smoothing)


def measure_of(problem: Classification | Regression, name: str, smoothing: float = 0.0) -> PerSample:
    """Return a loss or a metric. Raises UserError if a user's function cannot be read."""
    if ".py:" in name:
        return _from_file(name)
    probabilities = problem.outputs == "probabilities"
    if isinstance(problem, Regression):
        return partial(_compared, elementwise(probabilities, problem.huber_delta)[name], aligned)
    if found := TOP.fullmatch(name):
        return partial(classes.top, k=int(found[1]))
    if name in ("cross_entropy", "nll", "accuracy"):
        return _of_classes(name, probabilities, smoothing)
    return partial(_compared, elementwise(probabilities)[name], expected)


def _of_classes(name: str, probabilities: bool, smoothing: float) -> PerSample:
    entropy = classes.cross_entropy_of_probabilities if probabilities else classes.cross_entropy
    known: dict[str, PerSample] = {
        "cross_entropy": partial(entropy, smoothing=smoothing),
        "nll": classes.nll,
        "accuracy": partial(classes.accuracy, probabilities=probabilities),
    }
    return known[name]


def aligned(outputs: Tensor, labels: Tensor) -> Tensor:
    """Return labels as numbers (samples, k), like outputs (samples, k); raises UserError if they are not as many."""
    numbers = labels.reshape(len(labels), -1).to(outputs.dtype)
    if numbers.shape != outputs.shape:
        raise UserError(
            f"the model answers {outputs.shape[1]} numbers for a sample, but its labels are {numbers.shape[1]}"
        )
    return numbers


def expected(outputs: Tensor, labels: Tensor) -> Tensor:
    """Return what outputs (samples, k) should be: classes are one-hot, or 0 and 1 of a single output."""
    if labels.dtype != torch.int64 or outputs.shape[1] == 1:
        return aligned(outputs, labels)
    return functional.one_hot(labels, outputs.shape[1]).to(outputs.dtype)


def _compared(compare: PerSample, wanted: PerSample, outputs: Tensor, labels: Tensor) -> Tensor:
    flat = outputs.reshape(len(outputs), -1)
    flat = flat.float() if flat.dtype in (torch.float16, torch.bfloat16) else flat
    return compare(flat, wanted(flat, labels))


def _from_file(name: str) -> PerSample:
    try:
        function = user_function(name)
    except Exception as error:
        raise UserError(f"{name} cannot be used: {last_line(error)}") from error
    return partial(_checked, name, function)


def _checked(name: str, function: PerSample, outputs: Tensor, labels: Tensor) -> Tensor:
    try:
        values = function(outputs, labels)
    except Exception as error:
        raise UserError(f"{name}(outputs, targets) failed: {last_line(error)}") from error
    if not isinstance(values, Tensor) or values.shape != labels.shape[:1]:
        what = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
        raise UserError(f"{name} returned {what}; it must return a number for each of {len(labels)} samples")
    return values
