"""Initial weights from a file."""

import pickle
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from nnlo_lib.core.errors import UserError
from nnlo_lib.core.logging_setup import get_logger
from nnlo_lib.models.pydtnn_weights import read_pydtnn_weights

logger = get_logger(__name__)

KERAS_SUFFIXES = (".h5", ".hdf5")
PYDTNN_SUFFIX = ".npz"
SHOWN = 5  # maximum number of names in an error message


def load_weights(
    module: nn.Module, path: str, without: Sequence[str] = (), channels: int | None = None
) -> None:
    """Overwrite parameters and buffers with the tensors of a file.

    Args:
        module: model to initialize.
        path: safetensors file, state_dict saved by torch.save, PyDTNN's NPZ file, or Keras weight file.
        without: prefixes of names; tensors with these names keep their initial values.
        channels: channels of an input image, for PyDTNN's file; 1 for other inputs, None if unknown.
    Raises:
        UserError: with the names of the tensors that are missing in the file, unknown to the model, or of
            another shape.
    """
    if Path(path).suffix in KERAS_SUFFIXES:
        _load_keras(module, path, without)
        return
    wanted = {name: tensor for name, tensor in module.state_dict().items() if not _begins(name, without)}
    for prefix in without:
        if not any(name.startswith(prefix) for name in module.state_dict()):
            raise UserError(
                f"model.weights_except: no weight of the model begins with '{prefix}'; the weights are {_some(wanted)}"
            )
    if Path(path).suffix == PYDTNN_SUFFIX:
        tensors = read_pydtnn_weights(path, module, channels)
    else:
        tensors = _without_wrapper(read_weights(path), module, path)
    found = {name: tensor for name, tensor in tensors.items() if not _begins(name, without)}
    faults = [
        *_fault("missing tensors", wanted.keys() - found.keys()),
        *_fault("unexpected tensors", found.keys() - wanted.keys()),
        *_fault("tensors of another shape", _other_shapes(wanted, found)),
    ]
    if faults:
        hint = "to keep the initial values of some tensors, set model.weights_except: [name]"
        raise UserError(f"model.weights: {path} does not fit the model: {'; '.join(faults)} ({hint})")
    # Not strict, because tensors of `without` are missing on purpose; other differences are refused above.
    module.load_state_dict(found, strict=False)


def read_weights(path: str) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file or of a state_dict saved by torch.save.

    Raises UserError if the file cannot be read or contains anything except tensors.
    """
    try:
        if Path(path).suffix == ".safetensors":
            return dict(load_file(path))
        found = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise UserError(
            f"model.weights: {path} is damaged or contains code that would run on loading; save the weights only: "
            "torch.save(model.state_dict(), path)"
        ) from error
    except Exception as error:  # torch raises exceptions of any type for other formats
        raise UserError(f"model.weights: {path} cannot be read ({type(error).__name__}: {error})") from error
    if _are_tensors(found):
        return dict(found)
    # Trainers save the state_dict beside other state, under a key of their own: state_dict, model, net, ...
    inside = (
        {key: value for key, value in found.items() if _are_tensors(value)} if isinstance(found, dict) else {}
    )
    if len(inside) == 1:
        ((key, tensors),) = inside.items()
        logger.info(f"model.weights: {path}: the weights are the entry '{key}'")
        return dict(tensors)
    several = (
        f": several entries hold tensors by name ({_some({str(key) for key in inside})})" if inside else ""
    )
    raise UserError(
        f"model.weights: {path} does not contain a state_dict (tensors by name){several}; save it by "
        "torch.save(model.state_dict(), path)"
    )


def _are_tensors(value: object) -> bool:
    return (
        isinstance(value, dict) and bool(value) and all(isinstance(each, Tensor) for each in value.values())
    )


def _without_wrapper(tensors: dict[str, Tensor], module: nn.Module, path: str) -> dict[str, Tensor]:
    """Return the tensors without a prefix that all names share and no name of the model has.

    DataParallel writes `module.`, Lightning often `model.`, torch.compile `_orig_mod.`; they can be nested.

    Args:
        tensors: tensors of the file.
        module: the model.
        path: the file, for the note.
    """
    wanted, removed, inside = module.state_dict().keys(), "", tensors
    while prefix := _shared_prefix(inside):
        if any(name.startswith(prefix) for name in wanted):
            break
        inside, removed = {name.removeprefix(prefix): each for name, each in inside.items()}, removed + prefix
    if not removed or not wanted & inside.keys():  # names of another network
        return tensors
    logger.info(f"model.weights: {path}: all names begin with '{removed}', which is left out")
    return inside


def _shared_prefix(tensors: dict[str, Tensor]) -> str:
    firsts = {name.partition(".")[0] if "." in name else "" for name in tensors}
    return f"{firsts.pop()}." if len(firsts) == 1 and firsts != {""} else ""


def _load_keras(module: nn.Module, path: str, without: Sequence[str]) -> None:
    from nnlo_lib.models.keras.module import KerasNetwork

    if not isinstance(module, KerasNetwork) or without:
        raise UserError(
            f"model.weights: {path} is a Keras weight file, which requires a Keras model and no model.weights_except"
        )
    try:
        module.load_keras_weights(path)
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"model.weights: {path} does not fit the model: {error}") from error


def _begins(name: str, prefixes: Sequence[str]) -> bool:
    return any(name.startswith(prefix) for prefix in prefixes)


def _other_shapes(wanted: dict[str, Tensor], found: dict[str, Tensor]) -> list[str]:
    return [
        f"{name} ({_size(found[name])} in the file, {_size(tensor)} in the model)"
        for name, tensor in wanted.items()
        if name in found and found[name].shape != tensor.shape
    ]


def _size(tensor: Tensor) -> str:
    return " x ".join(map(str, tensor.shape)) or "one number"


def _fault(label: str, names: "set[str] | list[str]") -> list[str]:
    return [f"{label}: {_some(names)}"] if names else []


def _some(names: "set[str] | list[str] | dict[str, Tensor]") -> str:
    listed = sorted(names)
    more = f" and {len(listed) - SHOWN} more" if len(listed) > SHOWN else ""
    return f"{', '.join(listed[:SHOWN])}{more}"
