"""What every block of the experiment file is made of: frozen, strict, with errors that point at a key."""

import difflib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, NoReturn, Self, get_args

from pydantic import BaseModel, ConfigDict, ValidationInfo
from pydantic_core import PydanticCustomError

RECORDED_RUN_CONTEXT = {"recorded": True}  # context of reading what a run was: its files may be gone since
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.-]*$"  # becomes a folder name and a Snakemake wildcard


class ConfigFault(NamedTuple):
    """Why a combination makes no sense, and the key to point at."""

    reason: str
    at: tuple[str, ...]


def suggest_name(word: str, known: Iterable[str]) -> str:
    """Say which known name `word` was probably meant to be, or list them all."""
    known = sorted(known)
    close = difflib.get_close_matches(word, known, n=1)
    return f"did you mean '{close[0]}'?" if close else f"known: {', '.join(known)}"


def raise_config_error(message: str, *at: str) -> NoReturn:
    """Refuse an experiment; `at` is the key to point at, below the model that refuses."""
    raise PydanticCustomError("refused", "{message}", {"message": message, "at": at})


def is_missing_file(path: str, info: ValidationInfo) -> bool:
    """Say whether a run cannot be for want of a file."""
    return info.context != RECORDED_RUN_CONTEXT and not Path(path).is_file()


class ConfigModel(BaseModel):
    """A frozen block of the experiment file that refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def with_defaults_for(self, *keys: str) -> Self:
        """Return the block with the defaults of these keys."""
        return self.model_copy(update={key: default(type(self), key) for key in keys})


class ImplementedConfig(ConfigModel):
    """Settings of a class elsewhere, which is imported when it is built from them (core.lazy_import)."""

    implementation: ClassVar[str]  # module:Class

    @property
    def reference(self) -> str:
        """Reference of the class, for core.lazy_import."""
        return self.implementation

    @property
    def arguments(self) -> dict[str, Any]:
        """Keyword arguments of the implementation: all keys but the name."""
        return {key: value for key, value in self if key != "name"}


def default(block: type[ConfigModel], key: str) -> Any:
    """Return what a key is where nobody says it."""
    return block.model_fields[key].get_default(call_default_factory=True)


def non_defaults(value: Any) -> Any:
    """Return what of a block differs from its defaults, and its name: a key that is new since changes nothing."""
    if isinstance(value, ConfigModel):
        kind = type(value)
        return {key: non_defaults(held) for key, held in value if key == "name" or held != default(kind, key)}
    if isinstance(value, dict):
        return {key: non_defaults(held) for key, held in value.items()}
    return [non_defaults(held) for held in value] if isinstance(value, list | tuple) else value


def merge_settings(base: Any, changes: Any) -> Any:
    """Override `base` by `changes`, mapping by mapping; a new `name` starts its block afresh."""
    if not (isinstance(base, dict) and isinstance(changes, dict)):
        return changes
    if "name" in changes and changes["name"] != base.get("name"):
        return changes
    return base | {key: merge_settings(base.get(key), value) for key, value in changes.items()}


def block_types(annotation: Any) -> Iterator[type[ConfigModel]]:
    """Yield every block that a field of this type may hold: one, or the members of a union."""
    if isinstance(annotation, type) and issubclass(annotation, ConfigModel):
        yield annotation
    for part in get_args(annotation):
        yield from block_types(part)
