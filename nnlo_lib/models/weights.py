"""Initial weights from a file."""

import pickle
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from nnlo_lib.core.errors import UserError

KERAS_SUFFIXES = (".h5", ".hdf5")
SHOWN = 5  # maximum number of names in an error message


def load_weights(module: nn.Module, path: str, without: Sequence[str] = ()) -> None:
    """Overwrite parameters and buffers with the tensors of a file.

    Tensors with a name that begins with an entry of `without` keep their initial values. Raises UserError
    with the names of the tensors that are missing in the file, unknown to the model, or of another shape.
    """
    if Path(path).suffix in KERAS_SUFFIXES:
        _load_keras(module, path, without)
        return
    wanted = {name: tensor for name, tensor in module.state_dict().items() if not _begins(name, without)}
    for prefix in without:
        if not any(name.startswith(prefix) for name in module.state_dict()):
            raise UserError(
                f"model.weights_except: no weight of the model begins with '{prefix}'; {_some(wanted)}"
            )
    found = {name: tensor for name, tensor in read_weights(path).items() if not _begins(name, without)}
    faults = [
        *_told("lacks", wanted.keys() - found.keys()),
        *_told("has besides", found.keys() - wanted.keys()),
        *_told("has another shape for", _other_shapes(wanted, found)),
    ]
    if faults:
        hint = "weights of another kind of output can be left to chance: model.weights_except: [name]"
        raise UserError(f"model.weights: {path} does not fit the model: it {'; it '.join(faults)} ({hint})")
    module.load_state_dict(found, strict=False)


def read_weights(path: str) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file or of a state_dict saved by torch.save. Raises UserError."""
    try:
        if Path(path).suffix == ".safetensors":
            return dict(load_file(path))
        found = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise UserError(
            f"model.weights: {path} is damaged or not only tensors: reading it would run the code in it. Save "
            "the weights alone: torch.save(model.state_dict(), path)"
        ) from error
    except Exception as error:  # torch raises exceptions of any type for other formats
        raise UserError(f"model.weights: {path} cannot be read: {type(error).__name__} {error}") from error
    found = found.get("state_dict", found) if isinstance(found, dict) else found
    if not isinstance(found, dict) or not all(isinstance(value, Tensor) for value in found.values()):
        raise UserError(f"model.weights: {path} holds no state_dict: names and their tensors")
    return found


def _load_keras(module: nn.Module, path: str, without: Sequence[str]) -> None:
    from nnlo_lib.models.keras.module import KerasNetwork

    if not isinstance(module, KerasNetwork) or without:
        raise UserError(f"model.weights: {path} is Keras's, for all weights of a Keras model")
    try:
        module.load_keras_weights(path)
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"model.weights: {path} does not fit the model: {error}") from error


def _begins(name: str, prefixes: Sequence[str]) -> bool:
    return any(name.startswith(prefix) for prefix in prefixes)


def _other_shapes(wanted: dict[str, Tensor], found: dict[str, Tensor]) -> list[str]:
    return [
        f"{name} ({_size(found[name])}, the model's is {_size(tensor)})"
        for name, tensor in wanted.items()
        if name in found and found[name].shape != tensor.shape
    ]


def _size(tensor: Tensor) -> str:
    return " x ".join(map(str, tensor.shape)) or "one number"


def _told(what: str, names: "set[str] | list[str]") -> list[str]:
    return [f"{what} {_some(names)}"] if names else []


def _some(names: "set[str] | list[str] | dict[str, Tensor]") -> str:
    listed = sorted(names)
    more = f" and {len(listed) - SHOWN} more" if len(listed) > SHOWN else ""
    return f"{', '.join(listed[:SHOWN])}{more}"
