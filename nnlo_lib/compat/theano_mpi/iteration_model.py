"""A model class with its own iterations, as Theano-MPI had it (docs/guides/theano_mpi.md), with its tensors as one vector.

A class has all of ATTRIBUTES and METHODS. The rule sets `epoch`, counted from 0, and `current_info`: iterations, and cost,
error and error of the best five of the last validation. `train_iter(count, recorder)` takes a step and may return the
number of the next batch; `val_iter` measures a batch and may return `stop`.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from nnlo_lib.core.errors import USER_CODE_ERRORS, UserError
from nnlo_lib.core.user_code import load_user_module

ATTRIBUTES = ("params", "data", "epoch", "n_epochs", "n_subb")
DATA_ATTRIBUTES = ("n_batch_train", "n_batch_val")
METHODS = ("compile_iter_fns", "train_iter", "val_iter", "reset_iter", "adjust_hyperp", "cleanup")


def build_iteration_model(file: str, name: str, config: dict[str, Any]) -> Any:
    """Return an instance of the user's class; `file` is a path or the dotted name of a module."""
    where = f"{file}: {name}"
    try:
        model = getattr(load_user_module(model_path(file)), name)(config)
    except USER_CODE_ERRORS as error:
        raise UserError(
            f"{where}: the class cannot be built ({type(error).__name__}: {error}); correct it"
        ) from error
    missing = [name for name in ATTRIBUTES if not hasattr(model, name)]
    missing += [f"{name}()" for name in METHODS if not callable(getattr(model, name, None))]
    data = getattr(model, "data", None)
    missing += [f"data.{name}" for name in DATA_ATTRIBUTES if not hasattr(data, name)]
    if missing:
        raise UserError(f"{where}: the class lacks {', '.join(missing)}; see docs/guides/theano_mpi.md")
    others = [type(each).__name__ for each in model.params if not isinstance(each, Tensor)]
    if others or not model.params:
        found = f"holds {others[0]}" if others else "is empty"
        raise UserError(
            f"{where}: params {found}; put torch tensors there, because Theano does not run any more"
        )
    return model


def model_path(file: str) -> str:
    """Return the path of a model file that is given as a path or as a dotted name."""
    return file if file.endswith(".py") else f"{file.replace('.', '/')}.py"


class ParameterView:
    """Parameters of a model that takes its own steps, as an algorithm sees them.

    Attributes:
        theta: all parameters, (parameters,); the model's tensors become views into it, so that its steps and exchanges
            change the same memory.
        grad: memory for algorithms, (parameters,).
        buffers: empty, because a model exchanges all that it lists.
    """

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self.theta = flat_view(tensors)
        self.grad = torch.zeros_like(self.theta)
        self.buffers = self.theta.new_empty(0)

    def step(self) -> None:
        """Refuse: the model has taken its step."""
        raise TypeError("a model with its own iterations has no optimizer")

    reset_optimizer = step

    def on_gradient_ready(self, ready: Callable[[int], None]) -> None:
        """Never call `ready`: the gradients stay in the model."""


def flat_view(tensors: Sequence[Tensor]) -> Tensor:
    """Return a vector with the values of the tensors, which become views into it."""
    kinds = sorted({f"{each.dtype} on {each.device}" for each in tensors})
    if len(kinds) > 1 or not tensors[0].is_floating_point():
        raise UserError(f"params: tensors are {', '.join(kinds)}; use one floating-point type and one device")
    vector = torch.cat([each.detach().reshape(-1) for each in tensors])
    start = 0
    for each in tensors:
        each.data = vector[start : start + each.numel()].view(each.shape)
        start += each.numel()
    return vector
