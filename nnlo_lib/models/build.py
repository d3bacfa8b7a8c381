"""Build the network that an experiment names."""

import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from nnlo_lib.errors import UserError
from nnlo_lib.models.registry import MODELS
from nnlo_lib.streams import stream
from nnlo_lib.user_function import user_function

Shape = tuple[int, ...] | tuple[tuple[int, ...], ...]  # of a sample; of several inputs the shape of each


def build(name: str, args: dict[str, Any], shape: Shape, classes: int, seed: int) -> nn.Module:
    """Return the model `name` for samples of `shape`, its initial weights drawn from `seed`.

    With several inputs `shape` is a tuple of shapes, and the model is called with as many tensors. A user's function
    `path.py:function` is called with (shape, classes, **args).
    """
    function = _from_file(name) if ".py:" in name else _from_zoo(name)
    torch.manual_seed(stream(seed, "initial weights"))
    try:
        model = function(shape, classes, **args)
    except Exception as error:
        raise UserError(
            f"the model {name}(shape={shape}, classes={classes}, {args}) failed: {_last_line(error)}"
        ) from error
    if not isinstance(model, nn.Module):
        raise UserError(f"the model {name} returned {type(model).__name__}, not a torch.nn.Module")
    return model


def _from_zoo(name: str) -> Callable[..., Any]:
    module, function = MODELS[name].split(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), function)
    return found


def _from_file(name: str) -> Callable[..., Any]:
    try:
        return user_function(name)
    except Exception as error:
        path = name.rpartition(":")[0]
        raise UserError(f"the model file {path} cannot be used: {_last_line(error)}") from error


def _last_line(error: BaseException) -> str:
    """Name an error with the user's own line that raised it."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = f" ({trace.tb_frame.f_code.co_filename}:{trace.tb_lineno})" if trace else ""
    return f"{type(error).__name__}: {error}{where}"
