"""Protocol of a model class with its own iterations, as Theano-MPI had it, with tensors of torch as one flat vector."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from nnlo_lib.core.errors import USER_CODE_ERRORS, UserError
from nnlo_lib.core.user_code import load_user_module

ATTRIBUTES = ("params", "data", "epoch", "n_epochs", "n_subb")
METHODS = ("compile_iter_fns", "train_iter", "val_iter", "reset_iter", "adjust_hyperp", "cleanup")


class IterationData(Protocol):
    """Data of a model: numbers of batches of this rank in an epoch."""

    n_batch_train: int
    n_batch_val: int


class IterationModel(Protocol):
    """A model that takes its own training steps.

    Attributes:
        params: tensors that the rule exchanges; the model updates them in place.
        data: data of this rank.
        epoch: running epoch, counted from 0; the rule sets it.
        n_epochs: number of epochs.
        n_subb: steps per batch.
        current_info: iterations, and the last validation's cost, error and error of the best five; the rule sets it.
    """

    params: Sequence[Tensor]
    data: IterationData
    epoch: int
    n_epochs: int
    n_subb: int
    current_info: Sequence[float]

    def compile_iter_fns(self) -> None:
        """Prepare the iterations."""

    def train_iter(self, count: int, recorder: Any) -> int | None:
        """Take one training step; may return the number of the next batch of the epoch."""

    def val_iter(self, count: int, recorder: Any) -> str | None:
        """Measure one validation batch; may return `stop` to end the training after the epoch."""

    def reset_iter(self, mode: str) -> None:
        """Return to the first batch of `train` or `val`."""

    def adjust_hyperp(self, epoch: int) -> None:
        """Change the learning rate after an epoch."""

    def cleanup(self) -> None:
        """Release resources at the end."""


def build_iteration_model(file: str, name: str, config: dict[str, Any]) -> IterationModel:
    """Return an instance of the user's class; `file` is a path or the dotted name of a module.

    Raises UserError if the class cannot be loaded or built, or lacks a part of the protocol.
    """
    where = f"{file}: {name}"
    try:
        model: IterationModel = getattr(load_user_module(model_path(file)), name)(config)
    except USER_CODE_ERRORS as error:
        raise UserError(
            f"{where}: the class cannot be built ({type(error).__name__}: {error}); correct it"
        ) from error
    check_iteration_model(model, where)
    return model


def model_path(file: str) -> str:
    """Return the path of a model file that is given as a path or as a dotted name."""
    return file if file.endswith(".py") else f"{file.replace('.', '/')}.py"


def check_iteration_model(model: IterationModel, where: str) -> None:
    """Raise UserError if the model lacks a part of the protocol, or if its parameters are not tensors of torch."""
    missing = [name for name in ATTRIBUTES if not hasattr(model, name)]
    missing += [f"{name}()" for name in METHODS if not callable(getattr(model, name, None))]
    data = getattr(model, "data", None)
    missing += [f"data.{name}" for name in ("n_batch_train", "n_batch_val") if not hasattr(data, name)]
    if missing:
        raise UserError(f"{where}: the class lacks {', '.join(missing)}; see docs/guides/theano_mpi.md")
    others = [type(each).__name__ for each in model.params if not isinstance(each, Tensor)]
    if others or not model.params:
        found = f"holds {others[0]}" if others else "is empty"
        raise UserError(
            f"{where}: params {found}; put torch tensors there, because Theano does not run any more"
        )


class ParameterView:
    """Parameters of a model that takes its own steps, as an algorithm sees them.

    The tensors become views into `theta`, so that steps of the model and exchanges change the same memory.

    Attributes:
        theta: all parameters, (parameters,).
        grad: memory for algorithms, (parameters,).
        buffers: empty, because a model exchanges all that it lists.

    Raises:
        UserError: if the tensors have several types or devices, or a type other than floating point.
    """

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self.theta = flat_view(tensors)
        self.grad = torch.zeros_like(self.theta)
        self.buffers = self.theta.new_empty(0)

    def step(self) -> None:
        """Refuse: the model has taken its step."""
        raise TypeError("a model with its own iterations has no optimizer")

    def reset_optimizer(self) -> None:
        """Refuse: the state of the model's optimizer is unknown."""
        raise TypeError("a model with its own iterations has no optimizer")

    def on_gradient_ready(self, ready: Callable[[int], None]) -> None:
        """Never call `ready`: the gradients stay in the model."""


def flat_view(tensors: Sequence[Tensor]) -> Tensor:
    """Return a vector with the values of the tensors, which become views into it.

    Raises UserError if the tensors have several types or devices, or a type other than floating point.
    """
    kinds = sorted({f"{each.dtype} on {each.device}" for each in tensors})
    if len(kinds) > 1 or not tensors[0].is_floating_point():
        raise UserError(f"params: tensors are {', '.join(kinds)}; use one floating-point type and one device")
    vector = torch.cat([each.detach().reshape(-1) for each in tensors])
    start = 0
    for each in tensors:
        each.data = vector[start : start + each.numel()].view(each.shape)
        start += each.numel()
    return vector
