"""Settings of a user's class, which an experiment names by `path.py:Class` instead of a built-in name."""

import inspect
from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import Field, JsonValue, ValidationInfo, model_validator

from nnlo_lib.config.base import RECORDED_RUN_CONTEXT, ImplementedConfig, is_missing_file, raise_config_error
from nnlo_lib.core.errors import USER_CODE_ERRORS
from nnlo_lib.core.lazy_import import load_implementation
from nnlo_lib.core.user_code import error_with_source_line

USER_CLASS_PATTERN = r"\.py:\w+$"
BUILT_IN, USER_CLASS = "built-in", "user_class"  # tags of the two kinds of a section


def user_class_tag(section: Any) -> str:
    """Return the kind of a section, by its name: USER_CLASS for `path.py:Class`, otherwise BUILT_IN."""
    name = section.get("name") if isinstance(section, dict) else getattr(section, "name", None)
    return USER_CLASS if isinstance(name, str) and ".py:" in name else BUILT_IN


class UserClassConfig(ImplementedConfig):
    """A class in a file of the user."""

    base: ClassVar[str]  # module:Class that the user's class extends
    positional: ClassVar[int] = 0  # arguments that NNLO passes before `args`

    name: str = Field(
        description="`path.py:Class`; the path is relative to the working directory of nnlo.",
        json_schema_extra={"pattern": USER_CLASS_PATTERN},
    )
    args: dict[str, JsonValue] = Field({}, description="Keyword arguments of the class.")

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
        if is_missing_file(self.file, info):
            raise_config_error(
                f"file not found: '{self.file}'; paths are relative to the working directory of nnlo", "name"
            )
        try:
            found = load_implementation(self.name)
        except USER_CODE_ERRORS as error:  # whatever the user's file raises
            raise_config_error(f"{self.name} cannot be loaded: {error_with_source_line(error)}", "name")
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
        return f"{self.name} is not a subclass of {expected.__module__}.{expected.__name__}"
