"""Which network is trained."""

from pathlib import Path
from typing import Self

from pydantic import Field, JsonValue, ValidationInfo, field_validator, model_validator

from nnlo_lib.config.base import ConfigModel, is_missing_file, raise_config_error, suggest_name
from nnlo_lib.models.zoo_registry import MODELS

NETWORK_SUFFIXES = (".json", ".pt", ".pt2", ".pth", ".torch")  # networks that Keras or torch wrote
WEIGHT_SUFFIXES = (".safetensors", ".pt", ".pth", ".h5", ".hdf5")
FORMS = (
    "`path.py:function` that returns a torch Module or a Keras model, a module `path.py` with get_model() as NNLO's, "
    "a Keras `model.json`, TorchScript (`.pt`) or an exported program (`.pt2`)"
)


class ModelConfig(ConfigModel):
    """Which network is trained."""

    name: str = Field(
        "simplemlp",
        description=f"Name in the model zoo, or a file of your own, docs/guides/models.md: {FORMS}.",
        json_schema_extra={
            "anyOf": [
                {"enum": [*MODELS]},
                {"pattern": r"\.py:\w+$|\.(py|json|pt2?|pth|torch)$", "description": FORMS},
            ]
        },
    )
    args: dict[str, JsonValue] = Field({}, description="Keyword arguments passed to the model's function.")
    weights: str | None = Field(
        None,
        description="Initial weights, instead of those drawn from the seed: a `.safetensors` file, such as the "
        "model.safetensors of another run, a state_dict that torch.save wrote (`.pt`, `.pth`), or of a Keras model what its "
        "save_weights wrote (`.h5`).",
    )
    weights_except: tuple[str, ...] = Field(
        (), description="Weights that stay as drawn: those whose names begin so, like `fc.` in fine-tuning."
    )

    @field_validator("name")
    @classmethod
    def _known(cls, name: str, info: ValidationInfo) -> str:
        path = _path(name)
        if path is None and name not in MODELS:
            raise_config_error(
                f"unknown model '{name}'; {suggest_name(name, MODELS)}, or path/to/file.py:function"
            )
        if path is not None and is_missing_file(path, info):
            raise_config_error(f"model file '{path}' does not exist (paths start where you run nnlo)")
        return name

    @field_validator("weights")
    @classmethod
    def _readable(cls, weights: str | None, info: ValidationInfo) -> str | None:
        if weights is not None and is_missing_file(weights, info):
            raise_config_error(f"there is no file '{weights}' (paths start where you run nnlo)")
        if weights is not None and Path(weights).suffix not in WEIGHT_SUFFIXES:
            raise_config_error(f"'{weights}' is none of {', '.join(WEIGHT_SUFFIXES)}")
        return weights

    @model_validator(mode="after")
    def _go_together(self) -> Self:
        if self.args and self.is_network_file:
            raise_config_error(f"{self.name} is a finished network, which takes no arguments", "args")
        if self.weights_except and self.weights is None:
            raise_config_error(
                "says what not to take from model.weights, which is not there", "weights_except"
            )
        return self

    @property
    def user_file(self) -> str | None:
        """The user's file that the network is in."""
        return _path(self.name)

    @property
    def is_network_file(self) -> bool:
        """Whether the file holds the network itself, not a function that builds it."""
        return Path(self.name).suffix in NETWORK_SUFFIXES

    @property
    def input_files(self) -> tuple[str, ...]:
        """The files that initial weights and layers are read from."""
        return (*([self.name] if self.is_network_file else []), *([self.weights] if self.weights else []))


def _path(name: str) -> str | None:
    if ".py:" in name:
        return name.rpartition(":")[0]
    return name if Path(name).suffix in (".py", *NETWORK_SUFFIXES) else None
