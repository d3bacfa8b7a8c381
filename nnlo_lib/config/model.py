"""Which network is trained."""

from pathlib import Path

from pydantic import Field, JsonValue, field_validator

from nnlo_lib.config.strict import Strict, nearest, refuse
from nnlo_lib.models.registry import MODELS


class Model(Strict):
    """Which network is trained."""

    name: str = Field(
        "simplemlp",
        description="Name in the model zoo, or `path/to/file.py:function` that returns a torch Module.",
        json_schema_extra={
            "anyOf": [{"enum": [*MODELS]}, {"pattern": r"\.py:", "description": "`path.py:function`"}]
        },
    )
    args: dict[str, JsonValue] = Field({}, description="Keyword arguments passed to the model's function.")

    @field_validator("name")
    @classmethod
    def _known(cls, name: str) -> str:
        if ".py:" in name:
            if not Path(name.rpartition(":")[0]).is_file():
                refuse(
                    f"model file '{name.rpartition(':')[0]}' does not exist (paths start where you run nnlo)"
                )
        elif name not in MODELS:
            refuse(f"unknown model '{name}'; {nearest(name, MODELS)}, or path/to/file.py:function")
        return name
