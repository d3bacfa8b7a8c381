"""Settings of the search space: one dimension for each searched key."""

from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, JsonValue, WithJsonSchema, model_serializer, model_validator

from nnlo_lib.config.base import ConfigModel, raise_config_error

Scalar = bool | int | float | str | None
JSON = ("boolean", "integer", "number", "string", "array", "object", "null")
Value = Annotated[JsonValue, WithJsonSchema({"anyOf": [{"type": kind} for kind in JSON]})]
Choices = Annotated[tuple[Value, ...], Field(min_length=1)]
Wanted = Annotated[tuple[Scalar, ...], Field(min_length=1)]
KINDS = ("uniform", "log_uniform", "integer", "log_integer", "choice", "constant")


class DimensionConfig(ConfigModel):
    """The values of one searched key: exactly one kind of values, and optional conditions."""

    uniform: tuple[float, float] | None = None
    """Real numbers between two bounds."""
    log_uniform: tuple[float, float] | None = None
    """Positive real numbers between two bounds, uniform on a logarithmic scale."""
    integer: tuple[int, int] | None = None
    """Integers between two bounds, inclusive."""
    log_integer: tuple[int, int] | None = None
    """Positive integers between two bounds, inclusive, uniform on a logarithmic scale."""
    choice: Choices | None = None
    """List of values, which can be lists or mappings; a list instead of the section is equivalent."""
    constant: Value = None
    """Fixed value; a value instead of the section is equivalent."""
    when: dict[str, Scalar | Wanted] = Field({})
    """Conditions: the key is used only if these searched keys have these values, such as `{algorithm.name:
    [easgd]}`."""

    @property
    def kind(self) -> str:
        """The kind of values that is set."""
        # Keys that are written, because null is a valid constant.
        return next(kind for kind in KINDS if kind in self.model_fields_set)

    @property
    def bounds(self) -> tuple[float, float]:
        """Lower and upper bound of a range."""
        ends: tuple[float, float] = getattr(self, self.kind)
        return ends

    @model_serializer
    def _as_given(self) -> dict[str, Any]:
        return {key: getattr(self, key) for key in sorted(self.model_fields_set)}

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        kinds = [kind for kind in KINDS if kind in self.model_fields_set]
        if len(kinds) != 1:
            raise_config_error(
                f"set exactly one of {', '.join(KINDS)}" + (f", not {' and '.join(kinds)}" if kinds else "")
            )
        # repr distinguishes 1, 1.0 and true, which are equal in Python, and lists have no hash.
        if self.choice and len({repr(value) for value in self.choice}) < len(self.choice):
            raise_config_error("a value is listed twice; remove the duplicate", "choice")
        if self.kind not in ("choice", "constant"):
            low, high = self.bounds
            if not low < high:
                raise_config_error(
                    f"the lower bound {low:g} is not below the upper bound {high:g}; use [low, high] with low < high",
                    self.kind,
                )
            if self.kind.startswith("log") and low <= 0:
                raise_config_error(
                    f"a logarithmic scale requires a lower bound above 0, not {low:g}", self.kind
                )
        return self


def _expand_shorthand(value: Any) -> Any:
    """Expand a list to a choice, and a value to a constant."""
    if isinstance(value, list | tuple):
        return {"choice": value}
    return value if isinstance(value, dict | DimensionConfig) else {"constant": value}


SpaceConfig = dict[
    str,
    Annotated[
        DimensionConfig,
        BeforeValidator(_expand_shorthand, json_schema_input_type=DimensionConfig | Choices | Scalar),
    ],
]
