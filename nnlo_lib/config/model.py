"""Settings of the trained network, and the files of the user that settings name."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, JsonValue, ValidationInfo, field_validator, model_validator

from nnlo_lib.config.base import (
    ConfigModel,
    EditEffect,
    Requires,
    UserPath,
    raise_config_error,
    refuse_missing_file,
    suggest_name,
)
from nnlo_lib.core.user_code import imported_files
from nnlo_lib.models.zoo_registry import MODELS, PATTERN, library_of

CODE_REFERENCE = re.compile(
    r"(?:set:)?(.+\.py)(:\w+)?(@.+)?"
)  # path.py, path.py:name, path.py:name@output, set:path.py:name
NETWORK_SUFFIXES = (".json", ".pt", ".pt2", ".pth", ".torch")  # of networks saved by Keras or torch
WEIGHT_SUFFIXES = (".safetensors", ".pt", ".pth", ".ckpt", ".bin", ".tar", ".npz", ".h5", ".hdf5")
KERAS_SUFFIXES = (".h5", ".hdf5", ".keras")
TO_JSON = "write its layers by `open('model.json', 'w').write(model.to_json())`"
HDF5_REMEDY = f"{TO_JSON}, and set `model: {{{{name: model.json, weights: {{}}}}}}`"
KERAS_REMEDY = (
    f"{TO_JSON} and its weights by `model.save_weights('model.weights.h5')`, and set "
    "`model: {name: model.json, weights: model.weights.h5}`"
)
FORMS = (
    "`path.py:function` that returns a torch Module or a Keras model, a module `path.py` with get_model() as in NNLO, "
    "a Keras `model.json`, TorchScript (`.pt`) or an exported program (`.pt2`)"
)


class ModelConfig(ConfigModel):
    """The trained network."""

    name: UserPath = Field(
        "simplemlp",
        description=f"Name in the model zoo; timm:NAME or hf:NAME; or a file (docs/guides/models.md): {FORMS}.",
        json_schema_extra={
            "anyOf": [
                {"enum": [*MODELS]},
                {"pattern": PATTERN, "description": "`timm:NAME` or `hf:NAME`, with nnlo[timm] or nnlo[hf]"},
                {"pattern": r"\.py:\w+$|\.(py|json|pt2?|pth|torch)$", "description": FORMS},
            ]
        },
    )
    args: dict[str, JsonValue] = Field({})
    """Keyword arguments passed to the model's function."""
    custom_objects: dict[str, UserPath] = Field({})
    """Your classes and functions that a Keras `model.json` names: name in the file -> `path.py:Class` or
    `path.py:function`."""
    trust: Annotated[bool, EditEffect.NEXT_ATTEMPT] = False
    """Allow that the file of a saved torch network (`.pt`, `.pt2`) runs its code when it is read
    (docs/reference/security.md). Set it if you would also run a `.py` file of its author."""
    weights: UserPath | None = None
    """File of initial weights: `.safetensors`, such as the model.safetensors of another run; a state_dict written by
    torch.save (`.pt`, `.pth`, `.ckpt`, `.bin`, `.pth.tar`); PyDTNN's weights (`.npz`), for a sequence of layers; or,
    for a Keras model, a file written by save_weights (`.h5`). null: weights are drawn from the seed."""
    weights_except: Annotated[tuple[str, ...], Requires("weights")] = ()
    """Prefixes of the names of weights that are not loaded but drawn from the seed, such as `fc.` for fine-tuning."""

    @field_validator("name")
    @classmethod
    def _known(cls, name: str, info: ValidationInfo) -> str:
        if (path := _path(name)) is not None:
            refuse_missing_file(path, info)
        elif name not in MODELS and library_of(name) is None:
            suffix = Path(name).suffix
            if suffix in KERAS_SUFFIXES:
                raise_config_error(
                    f"'{name}' is a whole Keras model; {KERAS_REMEDY if suffix == '.keras' else HDF5_REMEDY.format(name)}"
                )
            if suffix in WEIGHT_SUFFIXES:
                raise_config_error(
                    f"'{name}' is a file of weights, without the network; set `model.weights: {name}`, and as `model.name` the "
                    "function that builds the network, path/to/file.py:function"
                )
            raise_config_error(
                f"unknown model '{name}'; {suggest_name(name, MODELS)}, timm:NAME, hf:NAME, or path/to/file.py:function"
            )
        return name

    @field_validator("custom_objects")
    @classmethod
    def _existing(cls, objects: dict[str, str], info: ValidationInfo) -> dict[str, str]:
        for name, reference in objects.items():
            path, _, function = reference.rpartition(":")
            if not path.endswith(".py") or not function.isidentifier():
                raise_config_error(f"'{reference}' is not `path.py:Class`", name)
            refuse_missing_file(path, info, name)
        return objects

    @field_validator("weights")
    @classmethod
    def _readable(cls, weights: str | None, info: ValidationInfo) -> str | None:
        if weights is None:
            return None
        refuse_missing_file(weights, info)
        if Path(weights).suffix == ".keras":
            raise_config_error(f"'{weights}' is a whole Keras model; {KERAS_REMEDY}")
        if Path(weights).suffix not in WEIGHT_SUFFIXES:
            raise_config_error(f"'{weights}' has an unknown suffix; use one of {', '.join(WEIGHT_SUFFIXES)}")
        return weights

    @model_validator(mode="after")
    def _check_combinations(self) -> Self:
        if self.args and self.is_network_file:
            raise_config_error(
                f"{self.name} is a saved network, which takes no arguments; remove `model.args`", "args"
            )
        if self.custom_objects and Path(self.name).suffix != ".json":
            raise_config_error(
                f"{self.name} is not a Keras JSON file; remove `model.custom_objects`", "custom_objects"
            )
        return self

    @property
    def user_file(self) -> str | None:
        """Path of the user's file with the network; None for a network of the zoo."""
        return _path(self.name)

    @property
    def is_network_file(self) -> bool:
        """True if the file contains the network itself instead of a function that builds it."""
        return Path(self.name).suffix in NETWORK_SUFFIXES


def _path(name: str) -> str | None:
    if ".py:" in name:
        return name.rpartition(":")[0]
    return name if Path(name).suffix in (".py", *NETWORK_SUFFIXES) else None


def input_files(settings: Any) -> tuple[str, ...]:
    """Return the user's files that settings, a JSON value, name, in the order of their first appearance.

    Code is followed through its imports (core.imported_files). Every other text with a suffix counts if it is
    the path of a file, also in arguments of the user's own classes and functions.
    """
    found: dict[str, None] = {}
    for text in _texts(settings):
        if code := CODE_REFERENCE.fullmatch(text):
            found |= dict.fromkeys(imported_files(code[1]))
        elif Path(text).suffix and os.path.isfile(text):
            found[text] = None
    return tuple(found)


def _texts(settings: Any) -> Iterator[str]:
    if isinstance(settings, str):
        yield settings
    elif isinstance(settings, dict | list):
        for each in settings.values() if isinstance(settings, dict) else settings:
            yield from _texts(each)
