"""Base classes and helpers of the settings: frozen, strict models whose errors name a key.

Further types of keys: times with a unit, effects of an edit on existing results, and classes of the user.
"""

import difflib
import inspect
import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, ClassVar, NoReturn, Self, TypeVar, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    JsonValue,
    Tag,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

from nnlo_lib.core.errors import USER_CODE_ERRORS, UserError
from nnlo_lib.core.text_format import expanded, unset_variable
from nnlo_lib.core.user_code import error_with_source_line, load_implementation, split_function_reference

# Validation context for the recorded settings of an earlier run, whose input files may have been deleted.
RECORDED_RUN_CONTEXT = {"recorded": True}
# Names become folder names and Snakemake wildcards.
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,199}$"  # file systems allow 255 characters, with suffixes
USER_CLASS_PATTERN = r"\.py:\w+$"
BUILT_IN, USER_CLASS = "built-in", "user_class"  # tags of the two kinds of a section
SECONDS_OF_UNIT = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
TIME_PARTS = re.compile(r"(\d+(?:\.\d+)?)\s*(d|h|min|m|s)\s*")
CLOCK_TIME = re.compile(r"(?:(\d+)-)?(\d+):([0-5]?\d):([0-5]?\d)")  # Slurm's days-hours:minutes:seconds
MB_OF_UNIT = {"MB": 1, "GB": 1000, "TB": 1_000_000, "M": 1, "MiB": 1, "G": 1024, "GiB": 1024, "T": 1024**2, "TiB": 1024**2}  # fmt: skip
SIZE = re.compile(rf"(\d+(?:\.\d+)?)\s*({'|'.join(MB_OF_UNIT)})")
TIME_FORMS = "90m, 2h, 1d, 24:00:00 (hours:minutes:seconds) or 1-12:00:00 (days-hours:minutes:seconds)"


def suggest_name(word: str, known: Iterable[str]) -> str:
    """Return a hint with the known name closest to `word`, or with all known names if none is close."""
    by_lower, word = {each.lower(): each for each in sorted(known)}, word.lower()
    close = difflib.get_close_matches(word, by_lower, n=1)
    # The beginning of a name, such as `acc`, is not similar enough to the whole name.
    close = close or [name for name in by_lower if len(word) > 2 and name.startswith(word)]
    return f"did you mean '{by_lower[close[0]]}'?" if close else f"known: {', '.join(by_lower.values())}"


def raise_config_error(message: str, *at: str) -> NoReturn:
    """Raise a validation error for the key at path `at`, relative to the model that is validated."""
    # The text is a parameter of the template, because braces in it would count as fields.
    raise PydanticCustomError("refused", "{message}", {"message": message, "at": at})


def refuse_missing_file(path: str, info: ValidationInfo, *at: str) -> None:
    """Raise a validation error if a file that the run needs is missing; recorded settings need no files."""
    if info.context != RECORDED_RUN_CONTEXT and not Path(path).is_file():
        raise_config_error(
            f"file not found: '{path}'; paths are relative to the working directory of nnlo", *at
        )


def _expanded_path(path: Any, info: ValidationInfo) -> Any:
    if not isinstance(path, str) or "://" in path:
        return path
    if info.context != RECORDED_RUN_CONTEXT and (name := unset_variable(path)):
        raise_config_error(f"environment variable {name} is not set; set it, or write the path")
    return expanded(path)


UserPath = Annotated[str, BeforeValidator(_expanded_path)]  # or `path.py:name`


@dataclass(frozen=True)
class Requires:
    """Limit in the annotation of a field: it may differ from its default only if `key` of the section does, too."""

    key: str


@dataclass(frozen=True)
class Excludes:
    """Limit in the annotation of a field: either it or `key` of the section may differ from its default."""

    key: str


class ConfigModel(BaseModel):
    """A section of the experiment file: frozen, without unknown keys; a number in place of a text is the text.

    The text below a key describes it in docs/reference/experiment.md and in the JSON schema.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, coerce_numbers_to_str=True)

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


@cache
def _limits(block: type[ConfigModel]) -> list[tuple[str, Requires | Excludes]]:
    fields = block.model_fields.items()
    return [(key, each) for key, field in fields for each in field.metadata if isinstance(each, Requires | Excludes)]  # fmt: skip


class ImplementedConfig(ConfigModel):
    """Settings of an implementation class, which is imported only when an object is built (core.lazy_import)."""

    implementation: ClassVar[str]  # location of the class, as `module:Class`

    @property
    def reference(self) -> str:
        """Reference of the class, for core.lazy_import."""
        return self.implementation

    @property
    def arguments(self) -> dict[str, Any]:
        """Keyword arguments of the implementation: all keys except `name`."""
        return {key: value for key, value in self if key != "name"}


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


def value_at(settings: Any, *keys: str) -> Any:
    """Return the value at nested keys of settings that are not validated yet, or None if there is none."""
    for key in keys:
        settings = settings.get(key) if isinstance(settings, dict) else None
    return settings


def block_types(annotation: Any) -> Iterator[type[ConfigModel]]:
    """Yield every ConfigModel class in a type annotation: the type itself, or the members of a union."""
    if isinstance(annotation, type) and issubclass(annotation, ConfigModel):
        yield annotation
    for part in get_args(annotation):
        yield from block_types(part)


def seconds_of(text: str) -> float | None:
    """Return the seconds of a time such as `90m`, `1h 30m`, `24:00:00` or `1-12:00:00`; None for other text.

    Two numbers, as in `90:00`, are no time: they are minutes and seconds for Slurm, hours and minutes for LSF.
    """
    if found := CLOCK_TIME.fullmatch(text):
        days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
        return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)
    if text and not TIME_PARTS.sub("", text):
        return sum(float(number) * SECONDS_OF_UNIT[unit] for number, unit in TIME_PARTS.findall(text))
    return None


def _megabytes_of(text: str) -> float | None:
    found = SIZE.fullmatch(text)
    return float(found[1]) * MB_OF_UNIT[found[2]] if found else None


def _with_unit(
    read: Callable[[str], float | None], convert: Callable[[float], float], kind: str, forms: str
) -> BeforeValidator:
    """Return a validator that also accepts a text with a unit; `read` returns None for other texts."""

    def number(value: Any) -> Any:
        if not isinstance(value, str):
            return value
        if (amount := read(value.strip())) is None:
            raise_config_error(f"{value!r} is not a {kind}; write a number of {forms}")
        return convert(amount)

    return BeforeValidator(number)


COUNT = Field(ge=1), WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string"}]})
SIZE_FORMS = "MB, or 4GB (4000 MB), 4G or 4GiB (4096 MB)"
Megabytes = Annotated[int, _with_unit(_megabytes_of, math.ceil, "size", SIZE_FORMS), *COUNT]
Minutes = Annotated[
    int,
    _with_unit(seconds_of, lambda seconds: math.ceil(seconds / 60), "time", f"minutes, or {TIME_FORMS}"),
    *COUNT,
]
Hours = Annotated[
    float, _with_unit(seconds_of, lambda seconds: seconds / 3600, "time", f"hours, or {TIME_FORMS}"), Field(gt=0),
    WithJsonSchema({"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "string"}]}),
]  # fmt: skip


class EditEffect(Enum):
    """Effect of an edit of a key on results that exist already; each value is its name in the documentation.

    A field declares its effect beside its type, as in `epochs: Annotated[int, EditEffect.RESUME]`. The keys of a
    section have the effect of the section unless they declare another one; the effect is RETRAIN if none is declared.
    """

    RETRAIN = "retrain"
    RESUME = "resume"
    EVALUATE = "evaluate"
    SAME_DATA = "same data"
    NEXT_ATTEMPT = "next attempt"
    JOBS = "other jobs"
    SEARCH_END = "end of the search"
    FROZEN = "frozen"


@cache
def edit_effects(
    section: type[ConfigModel], inherited: EditEffect = EditEffect.RETRAIN
) -> dict[str, EditEffect]:
    """Return the effect of each dotted key; a nested section is one key unless one of its keys has another effect."""
    effects: dict[str, EditEffect] = {}
    for key, field in section.model_fields.items():
        effect = next((each for each in field.metadata if isinstance(each, EditEffect)), inherited)
        inner = {
            f"{key}.{name}": each
            for block in block_types(field.annotation)
            for name, each in edit_effects(block, effect).items()
        }
        effects |= inner if {*inner.values()} - {effect} else {key: effect}
    return effects


def keys_with(section: type[ConfigModel], *effects: EditEffect) -> tuple[str, ...]:
    """Return the dotted keys of a section, or nested sections, with one of these effects."""
    return tuple(key for key, effect in edit_effects(section).items() if effect in effects)


def without_keys(settings: Any, keys: tuple[str, ...]) -> Any:
    """Return nested settings without some dotted keys."""
    if not isinstance(settings, dict):
        return settings
    return {
        name: without_keys(
            value, tuple(key.removeprefix(f"{name}.") for key in keys if key.startswith(f"{name}."))
        )
        for name, value in settings.items()
        if name not in keys
    }


def user_class_tag(section: Any) -> str:
    """Return the kind of a section, by its name: USER_CLASS for `path.py:Class`, otherwise BUILT_IN."""
    name = section.get("name") if isinstance(section, dict) else getattr(section, "name", None)
    return USER_CLASS if isinstance(name, str) and ".py:" in name else BUILT_IN


BuiltInT = TypeVar("BuiltInT")
UserClassT = TypeVar("UserClassT")
BuiltInOr = Annotated[
    Annotated[BuiltInT, Tag(BUILT_IN)] | Annotated[UserClassT, Tag(USER_CLASS)], Discriminator(user_class_tag)
]


class UserClassConfig(ImplementedConfig):
    """A class in a file of the user."""

    base: ClassVar[str]  # module:Class that the user's class extends
    kind: ClassVar[str] = "class"
    positional: ClassVar[int] = 0  # arguments that NNLO passes before `args`

    name: UserPath = Field(json_schema_extra={"pattern": USER_CLASS_PATTERN})
    """`path.py:Class`; the path is relative to the working directory of nnlo."""
    args: dict[str, JsonValue] = Field({})
    """Keyword arguments of the class."""

    @property
    def reference(self) -> str:
        """Reference of the user's class: its name."""
        return self.name

    @property
    def arguments(self) -> dict[str, Any]:
        """Keyword arguments of the class: `args`."""
        return dict(self.args)

    @property
    def file(self) -> str:
        """Path of the user's file."""
        return self.name.rpartition(":")[0]

    @property
    def class_name(self) -> str:
        """Name of the class without its file."""
        return self.name.rpartition(":")[2]

    @property
    def exists(self) -> bool:
        """Whether the user's file exists; the file of a past run may be gone."""
        return Path(self.file).is_file()

    @model_validator(mode="after")
    def _loadable(self, info: ValidationInfo) -> Self:
        """Load the class, unless the configuration of a past run is read: its file may be gone."""
        if info.context == RECORDED_RUN_CONTEXT:
            return self
        refuse_missing_file(self.file, info, "name")
        try:
            found = load_user_object(self.name, self.kind)
        except UserError as error:
            raise_config_error(str(error), "name")
        if reason := self._misfit(found):
            raise_config_error(reason, "name")
        try:
            self._bind_arguments(found)
        except TypeError as error:
            raise_config_error(f"{self.name}: {error}", "args")
        return self

    def _bind_arguments(self, found: Any) -> None:
        """Raise TypeError if the class has no such argument, unless it reads its settings by a method of its own."""
        if found.from_config.__func__ is load_implementation(self.base).from_config.__func__:
            inspect.signature(found).bind(*[None] * self.positional, **self.args)

    def _misfit(self, found: Any) -> str | None:
        """Return why the loaded object cannot be used, or None."""
        # Imported only for a user's class, because the base classes import torch or numpy.
        expected = load_implementation(self.base)
        if isinstance(found, type) and issubclass(found, expected):
            missing = ", ".join(sorted(getattr(found, "__abstractmethods__", ())))
            return f"{self.name} does not define {missing}" if missing else None
        return f"{self.name} is not a subclass of nnlo_lib.{expected.__name__}"


def load_user_object(reference: str, kind: str) -> Any:
    """Return the object of `path.py:name`, or `get_model` of `path.py`.

    Raises UserError if the file fails or does not define the object; kind: class or function.
    """
    path, name = split_function_reference(reference)
    try:
        return load_implementation(f"{path}:{name}")
    except USER_CODE_ERRORS as error:  # whatever the user's file raises
        module = getattr(error, "obj", None)
        if not (isinstance(module, ModuleType) and getattr(error, "name", None) == name):
            raise UserError(f"{path} cannot be loaded: {error_with_source_line(error)}") from error
        own = [
            key for key, each in vars(module).items() if getattr(each, "__module__", "") == module.__name__
        ]
        known = suggest_name(name, own) if own else "it defines none"
        raise UserError(f"{path} has no {kind} '{name}'; {known}") from error
