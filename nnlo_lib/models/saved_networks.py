"""Files of weights, and the tensors that a replica can hold."""

import pickle
import re
from argparse import Namespace
from collections.abc import Iterable, Sequence
from copy import deepcopy
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from nnlo_lib.core.errors import UserError
from nnlo_lib.core.logging_setup import get_logger
from nnlo_lib.core.text_format import sample_shape_text
from nnlo_lib.models.pydtnn_weights import read_pydtnn_weights

logger = get_logger(__name__)
KERAS_SUFFIXES = (".h5", ".hdf5")
PYDTNN_SUFFIX = ".npz"
# Trainers save their command line, and numbers of NumPy, beside the weights. Files of NumPy 1 name its module otherwise.
PLAIN_TYPES: list[Any] = [
    Namespace, np.dtype, np.ndarray, *{type(np.dtype(code)) for code in np.typecodes["All"] if code not in "OV"},
    *((found.__reduce__()[0], f"numpy.{module}.multiarray.{name}")
      for found, name in ((np.float64(0), "scalar"), (np.zeros(1), "_reconstruct")) for module in ("core", "_core")),
]  # fmt: skip
REFUSED_TYPE = re.compile(r"Unsupported (?:global: GLOBAL|class) ([\w.]+)")
PREFIXED = '{{name: each for name, each in found.items() if name.startswith("{}")}}'
SHOWN = 5  # maximum number of names in an error message


def load_weights(
    module: nn.Module, path: str, without: Sequence[str] = (), channels: int | None = None
) -> None:
    """Overwrite parameters and buffers with the tensors of a file. Raises UserError with the names of those that do not fit.

    Args:
        path: safetensors file, state_dict saved by torch.save, PyDTNN's NPZ file, or Keras weight file.
        without: prefixes of names; tensors with these names keep their initial values.
        channels: channels of an input image, for PyDTNN's file; 1 for other inputs, None if unknown.
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
    faults = {
        "missing tensors": wanted.keys() - found.keys(),
        "unexpected tensors": found.keys() - wanted.keys(),
        "tensors of another shape": [
            f"{name} ({sample_shape_text(found[name].shape)} in the file, {sample_shape_text(tensor.shape)} in the model)"
            for name, tensor in wanted.items()
            if name in found and found[name].shape != tensor.shape
        ],
        "tensors with NaN": {name for name, tensor in found.items() if tensor.isnan().any()},
    }
    if said := "; ".join(f"{label}: {_some(names)}" for label, names in faults.items() if names):
        hint = "to keep the initial values of some tensors, set model.weights_except: [name]"
        raise UserError(f"model.weights: {path} does not fit the model: {said} ({hint})")
    # Not strict, because tensors of `without` are missing on purpose; other differences are refused above.
    module.load_state_dict(found, strict=False)


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


def _some(names: Iterable[str]) -> str:
    listed = sorted(names)
    more = f" and {len(listed) - SHOWN} more" if len(listed) > SHOWN else ""
    return f"{', '.join(listed[:SHOWN])}{more}"


def _without_wrapper(tensors: dict[str, Tensor], module: nn.Module, path: str) -> dict[str, Tensor]:
    """Return the tensors without a prefix that all names share and no name of the model has, or whose names fit the model.

    DataParallel writes `module.`, AveragedModel a counter beside it, Lightning often `model.`, with the weights of a loss beside
    it, torch.compile `_orig_mod.`; they can be nested. Raises UserError if several prefixes fit.
    """
    wanted, removed, inside = module.state_dict().keys(), "", tensors
    while prefix := _shared_prefix(inside):
        if any(name.startswith(prefix) for name in wanted):
            break
        inside, removed = {name.removeprefix(prefix): each for name, each in inside.items()}, removed + prefix
    if not wanted <= inside.keys():
        first = next(iter(wanted))
        prefixes = [name.removesuffix(first) for name in tensors if name.endswith(f".{first}")]
        fitting = [
            each
            for each in prefixes
            if all(each + name in tensors and not name.startswith(each) for name in wanted)
        ]
        if len(fitting) > 1:
            raise UserError(
                f"model.weights: {path} holds the weights of the model {len(fitting)} times, below "
                f"{' and '.join(sorted(fitting))}; keep one: {_extraction(path, PREFIXED.format(sorted(fitting)[0]), True)}"
            )
        if fitting:
            [removed] = fitting
            inside = {name: each for name, each in tensors.items() if name.startswith(removed)}
            left_out = tensors.keys() - inside.keys()
            logger.info(f"model.weights: {path}: without {_some(left_out)}") if left_out else None
            inside = {name.removeprefix(removed): each for name, each in inside.items()}
    if not removed or not wanted & inside.keys():  # names of another network
        return tensors
    logger.info(f"model.weights: {path}: the names of the weights begin with '{removed}', which is left out")
    return inside


def _shared_prefix(tensors: dict[str, Tensor]) -> str:
    firsts = {name.partition(".")[0] if "." in name else "" for name in tensors}
    return f"{firsts.pop()}." if len(firsts) == 1 and firsts != {""} else ""


def _extraction(path: str, weights: str, is_safe: bool) -> str:
    """Return the two lines of Python that write the weights alone."""
    return f'found = torch.load("{path}", weights_only={is_safe}); torch.save({weights}, "weights.pth")'


def read_weights(path: str) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file or of a state_dict saved by torch.save.

    Raises UserError if the file cannot be read or contains objects other than plain values.
    """
    try:
        if Path(path).suffix == ".safetensors":
            return dict(load_file(path))
        with torch.serialization.safe_globals(PLAIN_TYPES):
            found = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise UserError(f"model.weights: {path} {_refused(path, str(error))}") from error
    except Exception as error:  # torch raises exceptions of any type for other formats
        raise UserError(f"model.weights: {path} cannot be read ({type(error).__name__}: {error})") from error
    if tensors := _tensors_of(found):
        return tensors
    # Trainers save the state_dict beside other state, under a key of their own: state_dict, model, net, ...
    entries = found.items() if isinstance(found, dict) else ()
    inside = {str(key): tensors for key, value in entries if (tensors := _tensors_of(value))}
    if len(inside) == 1:
        ((key, tensors),) = inside.items()
        logger.info(f"model.weights: {path}: the weights are the entry '{key}'")
        return tensors
    if inside:
        raise UserError(
            f"model.weights: {path}: several entries hold tensors by name ({_some(list(inside))}); choose one: "
            + _extraction(path, f'found["{min(inside)}"]', True)
        )
    raise UserError(
        f"model.weights: {path} does not contain a state_dict (tensors by name); save it by "
        "torch.save(model.state_dict(), path)"
    )


def _refused(path: str, error: str) -> str:
    """Return why torch does not load a file without running code, and the lines that write its weights alone."""
    found = REFUSED_TYPE.search(error)
    with open(path, "rb") as file:
        start = file.read(40).partition(b"\n")[0]
    if found is None and start.isascii() and start.decode().isprintable():
        return f"is damaged: it begins with {start.decode()!r}, as a pointer of Git LFS (git lfs pull) or a web page does; download the file itself"
    if found is None:
        return "is damaged or contains code that would run on loading; save the weights only: torch.save(model.state_dict(), path)"
    is_network = found[1].startswith("torch.nn.")
    weights = "found.state_dict()" if is_network else 'found["state_dict"]'
    what = "is a whole network" if is_network else f"contains {found[1]}"
    other = "" if is_network else ", or its key of the weights; found.state_dict() if it is a whole network"
    return (
        f"{what}, whose code would run on loading; if you trust the file, write its weights alone: "
        f"{_extraction(path, weights, False)}{other}"
    )


def _tensors_of(value: object) -> dict[str, Tensor]:
    """Return tensors by name, also of NumPy arrays; empty if the value is something else."""
    if not isinstance(value, dict) or not all(
        isinstance(each, Tensor | np.ndarray) for each in value.values()
    ):
        return {}
    return {str(name): torch.as_tensor(each) for name, each in value.items()}


def make_dense(module: nn.Module) -> nn.Module:
    """Copy parameters and buffers that are strided or expanded views to memory of their own; return the module.

    The replica and files of weights hold the values one after another. Raises UserError for tensors that cannot be held so.
    """
    for name, tensor in chain(module.named_parameters(), module.named_buffers()):
        if is_lazy(tensor):
            raise UserError(
                f"{name} of the model has no shape before the first call; give the layer its input size, for example nn.Linear in place of nn.LazyLinear"
            )
        if tensor.is_complex():
            raise UserError(
                f"{name} of the model is complex, which is not supported; keep real and imaginary part as one real tensor "
                "(torch.view_as_real) and use torch.view_as_complex in forward()"
            )
        if tensor.layout is not torch.strided:
            raise UserError(f"{name} of the model is sparse, which is not supported; use a dense tensor")
        # The copy keeps the strides of tensors without gaps and without elements in common, channels-last ones included.
        # On `meta`, it costs half a second of imports.
        if not tensor.is_contiguous() and torch.empty_like(tensor).stride() != tensor.stride():
            tensor.data = tensor.data.contiguous()
    # The replica would separate two parameters that share memory, and train both.
    extents = sorted(
        (tensor.data_ptr(), tensor.data_ptr() + tensor.numel() * tensor.element_size(), name)
        for name, tensor in module.named_parameters()
        if tensor.numel() and tensor.device.type != "meta"
    )
    for (_, end, first), (start, _, second) in pairwise(extents):
        if start < end:
            raise UserError(
                f"the parameters {first} and {second} of the model share memory, but are two; assign one Parameter to both "
                f"(module.{second} = module.{first})"
            )
    return module


class StateGuard:
    """Finds state that a training step changes and that checkpoints do not hold."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._parameters = [name for name, _ in module.named_parameters()]
        self._buffers = dict(module.named_buffers())
        # Values that each attempt, and the evaluation, takes from the code of the model.
        self._fixed = {name: tensor.detach().clone() for name, tensor in self._from_code().items()}
        self._extra = deepcopy(self._extra_states())

    def problem(self) -> str:
        """Return why a resumed training would differ from an undisturbed one, or an empty string."""
        new = [name for name, _ in self._module.named_parameters() if name not in self._parameters]
        if new:
            return f"the parameter {new[0]} appeared in the first call, and would not be trained; create it in __init__()"
        for name, value in self._extra_states().items():
            if not _equal(value, self._extra[name]):
                return (
                    f"a training step changes get_extra_state() of {name or 'the model'}, which checkpoints do not hold; keep "
                    "the value in a buffer (register_buffer)"
                )
        buffers = dict(self._module.named_buffers())
        for name, before in self._buffers.items():
            if buffers.get(name) is not before:
                return f"forward() assigns a new tensor to the buffer {name}; change the buffer in place (self.{name}.copy_(...)), so that checkpoints hold it"
        for name, tensor in self._from_code().items():
            if name in self._fixed and not torch.equal(tensor, self._fixed[name]):
                frozen = isinstance(tensor, nn.Parameter)
                kind = "parameter without gradient" if frozen else "buffer with persistent=False"
                return f"a training step changes {name}, a {kind}, which checkpoints do not hold; make it a buffer (register_buffer)"
        return ""

    def _extra_states(self) -> dict[str, Any]:
        modules = self._module.named_modules()
        own = nn.Module.get_extra_state
        return {
            name: each.get_extra_state() for name, each in modules if type(each).get_extra_state is not own
        }

    def _from_code(self) -> dict[str, Tensor]:
        """Return the frozen parameters and the buffers that are no part of files of weights."""
        kept = self._module.state_dict(keep_vars=True)
        frozen = {name: each for name, each in self._module.named_parameters() if not each.requires_grad}
        return frozen | {name: each for name, each in self._module.named_buffers() if name not in kept}


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return one.shape == other.shape and torch.equal(one, other)
    return bool(one == other)
