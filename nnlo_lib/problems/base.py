"""Problem, the interface between the training loop and a loss: sums over samples, and penalties that a model adds to its loss."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from nnlo_lib.config import Run
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.user_code import load_implementation


class BatchLoss(NamedTuple):
    """The loss of a mini-batch.

    Attributes:
        loss: the scalar to differentiate.
        sums: computes the sums of the mini-batch (see Problem) on demand.
    """

    loss: Tensor
    sums: Callable[[], Tensor]


class Problem(ABC):
    """A loss to minimize and metrics to measure.

    Sums are float64 vectors, (sums_size,), on the model's device or the CPU: number of samples, summed loss, each summed metric. They add up over
    mini-batches. A metric that is no mean over samples has other sums, from which `means` computes it.
    """

    names: tuple[str, ...]  # "loss", then the metrics
    # True if the loss includes `regularization_loss(module)`; other problems refuse models that have one.
    adds_regularization = False

    @classmethod
    def from_config(cls, config: Any, run: Run) -> "Problem":
        """Return the problem of a run with these settings, `run.problem`.

        By default, the settings are the keyword arguments of the class. Raises UserError if a user's function
        cannot be loaded.
        """
        return cls(**config.arguments)

    @property
    def sums_size(self) -> int:
        """Length of the vectors of sums."""
        return 1 + len(self.names)

    @abstractmethod
    def compute_loss(
        self, module: nn.Module, inputs: tuple[Tensor, ...], targets: Tensor, step: int
    ) -> BatchLoss:
        """Apply the model, in training mode, to the mini-batch of a step (from 0); return the loss, and its sums on demand.

        Each of `inputs`, and `targets`, is (samples, ...). Do not call backward: NNLO does.
        """

    @abstractmethod
    def measure(self, module: nn.Module, inputs: tuple[Tensor, ...], targets: Tensor) -> Tensor:
        """Return the sums of samples that are only evaluated, by the model in evaluation mode, without a gradient."""

    def set_classes(self, classes: int | None, weights: Tensor | None) -> None:
        """Use the number of classes of the data, None without classes, and weights of their losses, (classes,), if given."""

    def means(self, sums: Tensor) -> dict[str, float]:
        """Return the mean loss and metrics by name; an empty dictionary if there are no samples."""
        samples, *totals = sums.tolist()
        return {name: total / samples for name, total in zip(self.names, totals, strict=True) if samples}


def build_problem(run: Run, classes: int | None = None, class_weights: Any = None) -> Problem:
    """Return the problem of a run. Raises UserError if a user's function cannot be loaded.

    Args:
        classes: number of classes of the data; None if the labels are no classes.
        class_weights: array of the weights that the training gives to the losses of the classes; None without.
    """
    kind: type[Problem] = load_implementation(run.problem.reference)
    problem = kind.from_config(run.problem, run)
    problem.set_classes(classes, None if class_weights is None else torch.as_tensor(class_weights))
    return problem


def regularization_loss(module: nn.Module) -> Tensor | None:
    """Return what the method `regularization_loss` of a model returns, a scalar; None if it has no such method.

    It is called after a forward pass, so that it may depend on the last outputs.
    """
    method = getattr(module, "regularization_loss", None)
    penalty: Tensor | None = method() if method else None
    return penalty


def refuse_regularization(module: nn.Module, reason: str) -> None:
    """Raise UserError if a model adds a penalty to the loss; after a forward pass.

    `reason` says what would ignore the penalty, and what to do.
    """
    if regularization_loss(module) is not None:
        raise UserError(f"the model has a regularization loss, {reason}")
