"""Base classes and helpers of the configuration: frozen, strict models with errors that name a key."""

import difflib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, NoReturn, Self, get_args

from pydantic import BaseModel, ConfigDict, ValidationInfo, model_validator
from pydantic_core import PydanticCustomError

# Validation context for the recorded settings of an earlier run, whose input files may have been deleted.
RECORDED_RUN_CONTEXT = {"recorded": True}
# Names become folder names and Snakemake wildcards.
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,199}$"  # file systems allow 255 characters, with suffixes


class ConfigFault(NamedTuple):
    """An invalid combination of settings.

    Attributes:
        reason: error message, with the remedy.
        at: path of the key to which the message belongs.
    """

    reason: str
    at: tuple[str, ...]


def suggest_name(word: str, known: Iterable[str]) -> str:
    """Return a hint with the known name closest to `word`, or with all known names if none is close."""
    known = sorted(known)
    close = difflib.get_close_matches(word, known, n=1)
    return f"did you mean '{close[0]}'?" if close else f"known: {', '.join(known)}"


def raise_config_error(message: str, *at: str) -> NoReturn:
    """Raise a validation error for the key at path `at`, relative to the model that is validated."""
    # The text is a parameter of the template, because braces in it would count as fields.
    raise PydanticCustomError("refused", "{message}", {"message": message, "at": at})


def is_missing_file(path: str, info: ValidationInfo) -> bool:
    """Return True if a file that the run needs is missing; always False for recorded settings."""
    return info.context != RECORDED_RUN_CONTEXT and not Path(path).is_file()


@dataclass(frozen=True)
class Requires:
    """Limit in the annotation of a field: it may differ from its default only if `key` of the section does, too."""

    key: str


@dataclass(frozen=True)
class Excludes:
    """Limit in the annotation of a field: either it or `key` of the section may differ from its default."""

    key: str


class ConfigModel(BaseModel):
    """A section of the experiment file: frozen, without unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="after")
    def _check_limits(self) -> Self:
        limits = _limits(type(self))
        changed = {key for key, value in self if value != default(type(self), key)} if limits else ()
        for key, limit in limits:
            other = limit.key
            if key in changed and isinstance(limit, Requires) and other not in changed:
                raise_config_error(f"requires {other}; set `{other}`, or remove this key", key)
            if key in changed and isinstance(limit, Excludes) and other in changed:
                raise_config_error(f"cannot be combined with {other}; remove one of them", key)
        return self

    def with_defaults_for(self, *keys: str) -> Self:
        """Return a copy in which these keys, which may be dotted, have their default values."""
        copy = self
        for key in keys:
            section, _, rest = key.partition(".")
            value = getattr(copy, section).with_defaults_for(rest) if rest else default(type(self), section)
            copy = copy.model_copy(update={section: value})
        return copy


class ImplementedConfig(ConfigModel):
    """Settings of an implementation class, which is imported only when an object is built (core.lazy_import).

    Attributes:
        implementation: location of the class, as `module:Class`.
    """

    implementation: ClassVar[str]

    @property
    def reference(self) -> str:
        """Reference of the class, for core.lazy_import."""
        return self.implementation

    @property
    def arguments(self) -> dict[str, Any]:
        """Keyword arguments of the implementation: all keys except `name`."""
        return {key: value for key, value in self if key != "name"}


@cache
def _limits(block: type[ConfigModel]) -> list[tuple[str, Requires | Excludes]]:
    fields = block.model_fields.items()
    return [
        (key, each)
        for key, field in fields
        for each in field.metadata
        if isinstance(each, Requires | Excludes)
    ]


def default(block: type[ConfigModel], key: str) -> Any:
    """Return the default value of a key."""
    return block.model_fields[key].get_default(call_default_factory=True)


def non_defaults(value: Any) -> Any:
    """Return the settings that differ from their defaults, and each `name`.

    A key that a later version adds does not change the result while it has its default value.
    """
    if isinstance(value, ConfigModel):
        kind = type(value)
        # The name stays, even if it is a default, because it says to which section the other keys belong.
        return {key: non_defaults(each) for key, each in value if key == "name" or each != default(kind, key)}
    if isinstance(value, dict):
        return {key: non_defaults(each) for key, each in value.items()}
    return [non_defaults(each) for each in value] if isinstance(value, list | tuple) else value


def merge_settings(base: Any, changes: Any) -> Any:
    """Return `base` overridden by `changes`, recursively; a different `name` replaces its whole section."""
    if not (isinstance(base, dict) and isinstance(changes, dict)):
        return changes
    # The keys of a section depend on its name, so keys of the base do not apply to another name.
    if "name" in changes and changes["name"] != base.get("name"):
        return changes
    return base | {key: merge_settings(base.get(key), value) for key, value in changes.items()}


def block_types(annotation: Any) -> Iterator[type[ConfigModel]]:
    """Yield every ConfigModel class in a type annotation: the type itself, or the members of a union."""
    if isinstance(annotation, type) and issubclass(annotation, ConfigModel):
        yield annotation
    for part in get_args(annotation):
        yield from block_types(part)
