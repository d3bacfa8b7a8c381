"""The network that an experiment names: of the zoo, a library, a Python file or a network file."""

import random
import sys
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from nnlo_lib.core.errors import USER_CODE_ERRORS, UserError
from nnlo_lib.core.file_lock import guard_torch_compiler
from nnlo_lib.core.logging_setup import get_logger
from nnlo_lib.core.rng import derive_seed
from nnlo_lib.core.user_code import (
    error_with_source_line,
    load_implementation,
    load_user_function,
    select_torch_for_keras,
    split_function_reference,
)
from nnlo_lib.models.saved_networks import make_dense
from nnlo_lib.models.torchscript import code_of_torch_network, load_torch_network
from nnlo_lib.models.zoo_registry import MODELS, library_of, missing_library

logger = get_logger(__name__)
Shape = tuple[int, ...] | tuple[tuple[int, ...], ...]  # shape of a sample, or one shape per input
OmittedActivation = Any  # nnlo_lib.models.keras.module.OmittedActivation, without importing Keras
TORCH_SUFFIXES = (".pt", ".pt2", ".pth", ".torch")
NETWORK_SUFFIXES = (".json", *TORCH_SUFFIXES)
LIBRARY_BUILDERS = {
    "timm": "nnlo_lib.models.libraries:build_timm_network",
    "hf": "nnlo_lib.models.libraries:build_transformers_network",
}


def build_model(
    name: str,
    args: dict[str, Any],
    shape: Shape,
    classes: int,
    seed: int,
    undone: str | None = None,
    trust: bool = False,
    custom_objects: Mapping[str, str] | None = None,
) -> nn.Module:
    """Return the model `name` for samples of `shape`, its initial weights drawn from `seed`.

    Args:
        name: a model of the zoo; `timm:NAME` or `hf:NAME`; `path.py:function`, called with (shape, classes, **args); `path.py`, a
            module in NNLO's form, its get_model called with (**args); or a network file (Keras JSON,
            TorchScript, exported program).
        shape: shape of a sample; with several inputs, a tuple of shapes, and the model takes one tensor per
            input.
        undone: final activation to leave out of a Keras model, because the loss applies it.
        trust: allow that a network file of torch runs its code when it is read.
        custom_objects: classes and functions that a Keras file names, as `path.py:Class`.
    """
    select_torch_for_keras()
    guard_torch_compiler()
    _seed_initial_weights(derive_seed(seed, "initial weights"))
    try:
        if Path(name).suffix in NETWORK_SUFFIXES:
            if not trust and Path(name).suffix in TORCH_SUFFIXES:
                raise UserError(
                    f"{name} was not read: {code_of_torch_network(name)}. If you would also run a Python file of its author, set "
                    "model.trust: true (`nnlo model`: --trust)"
                )
            with torch.device("cpu"):  # even if the caller has set another default device
                module = _network_from_file(name, custom_objects or {}, shape, undone)
                _try(module, input_shapes(shape), classes)
            return make_dense(module)
        model = _as_torch(_made(name, args, shape, classes), shape, undone)
    except UserError:
        raise
    except USER_CODE_ERRORS as error:
        arguments = ", ".join(
            [*([] if Path(name).suffix == ".py" else [f"shape={shape}, classes={classes}"]), f"{args}"]
        )
        raise UserError(
            f"{error_with_source_line(error)}; raised by the model {name}({arguments})"
        ) from error
    if not isinstance(model, nn.Module):
        raise UserError(f"the model {name} returned {type(model).__name__}; it must return a torch.nn.Module")
    return make_dense(model)


def module_from_function(
    make: Callable[[], Any], shape: Shape, seed: int, undone: str | None = None
) -> nn.Module:
    """Return the network that `make` builds for samples of `shape` as a torch Module.

    `undone` is the final activation to leave out of a Keras model, because the loss applies it.
    """
    _seed_initial_weights(derive_seed(seed, "initial weights"))
    model = make()
    try:
        model = _as_torch(model, shape, undone)
    except ValueError as error:
        raise UserError(f"the model {model.name} cannot be trained: {error}") from error
    if not isinstance(model, nn.Module):
        raise UserError(
            f"build_model() returned {type(model).__name__}; it must return a torch Module or a Keras model"
        )
    return make_dense(model)


def input_shapes(shape: Shape) -> tuple[tuple[int, ...], ...]:
    """Return the sample shape of each input."""
    several = bool(shape) and isinstance(shape[0], tuple)
    return shape if several else (shape,)  # type: ignore[return-value]


def _seed_initial_weights(seed: int) -> None:
    """Seed the generators of the initial weights: the generator of torch, and Python's generator for Keras."""
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)
    if "keras" in sys.modules:
        from keras.src.utils.naming import reset_uids

        reset_uids()  # unnamed layers get the same names in every process and rank


def _network_from_file(
    path: str, custom_objects: Mapping[str, str], shape: Shape, undone: str | None
) -> nn.Module:
    if Path(path).suffix in TORCH_SUFFIXES:
        return load_torch_network(path)
    try:
        import keras  # noqa: F401
    except ImportError as error:
        raise UserError(f"{path}: Keras is required but not installed; pip install 'nnlo[keras]'") from error
    from nnlo_lib.models.keras.module import load_keras_json

    custom = {name: _from_file(each) for name, each in custom_objects.items()}
    module: nn.Module = _as_torch(load_keras_json(path, custom), shape, undone)
    return module


@torch.no_grad()
def _try(model: nn.Module, shapes: tuple[tuple[int, ...], ...], classes: int) -> None:
    """Call a network from a file with batches of 2 and 3 samples.

    Raises ValueError if the network has too few outputs for the classes, and the error of the network if it
    does not accept the batches.
    """
    was_training = model.training
    model.eval()
    # Two sizes, because a saved network can have a fixed batch size.
    for samples in (2, 3):
        scores = model(*(torch.zeros(samples, *shape) for shape in shapes))
    model.train(was_training)
    # A single output is left to the loss: some losses compare one score with the label.
    if isinstance(scores, torch.Tensor) and scores.dim() == 2 and 1 < scores.shape[1] < classes:
        raise ValueError(f"the network has {scores.shape[1]} outputs, but the data set has {classes} classes")


def _as_torch(model: Any, shape: Shape, undone: OmittedActivation) -> Any:
    """Return a Keras model as a torch Module, a compiled Module before its compilation, and any other object unchanged."""
    if hasattr(model, "_orig_mod"):  # its names of weights would begin with `_orig_mod.`
        _say_not_compiled()
        return model._orig_mod
    keras = sys.modules.get("keras")
    if keras is None or not isinstance(model, keras.Model):
        return model
    from nnlo_lib.models.keras.module import KerasNetwork

    return KerasNetwork(model, input_shapes(shape), undone)


@cache
def _say_not_compiled() -> None:
    logger.warning("the model is used without its torch.compile; set train.compile: true to compile it")


def _made(name: str, args: dict[str, Any], shape: Shape, classes: int) -> Any:
    if name in MODELS:
        return load_implementation(MODELS[name])(shape, classes, **args)
    if library := library_of(name):
        if missing := missing_library(name):
            raise UserError(missing)
        return load_implementation(LIBRARY_BUILDERS[library])(name.partition(":")[2], args, shape, classes)
    function = _from_file(name)
    return function(**args) if name.endswith(".py") else function(shape, classes, **args)


def _from_file(name: str) -> Callable[..., Any]:
    try:
        return load_user_function(name)
    except USER_CODE_ERRORS as error:
        path, _ = split_function_reference(name)
        raise UserError(f"the model file {path} cannot be loaded: {error_with_source_line(error)}") from error
