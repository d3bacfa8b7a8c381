"""What a search may change: one dimension for each key of the experiment."""

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
    """The values that one key may take: exactly one of the kinds, and when it matters."""

    uniform: tuple[float, float] | None = Field(None, description="Real numbers, from and to.")
    log_uniform: tuple[float, float] | None = Field(
        None, description="Positive real numbers, even on a logarithmic scale."
    )
    integer: tuple[int, int] | None = Field(None, description="Whole numbers, both ends included.")
    log_integer: tuple[int, int] | None = Field(
        None, description="Positive whole numbers, even on a logarithmic scale."
    )
    choice: Choices | None = Field(
        None, description="One of these, which may be lists or mappings; a plain list means the same."
    )
    constant: Value = Field(None, description="Always this; a plain value means the same.")
    when: dict[str, Scalar | Wanted] = Field(
        {},
        description="Matters only where these searched keys have these values: `{algorithm.name: [easgd]}`.",
    )

    @property
    def kind(self) -> str:
        """Which of the kinds was given."""
        return next(kind for kind in KINDS if kind in self.model_fields_set)

    @property
    def bounds(self) -> tuple[float, float]:
        """Lower and upper end of a range."""
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
                f"give one of {', '.join(KINDS)}" + (f", not {' and '.join(kinds)}" if kinds else "")
            )
        if self.choice and len({repr(value) for value in self.choice}) < len(self.choice):
            raise_config_error("a value is listed twice", "choice")
        if self.kind not in ("choice", "constant"):
            low, high = self.bounds
            if not low < high:
                raise_config_error(f"from {low:g} to {high:g} leaves nothing to search", self.kind)
            if self.kind.startswith("log") and low <= 0:
                raise_config_error(f"a logarithmic scale starts above 0, not at {low:g}", self.kind)
        return self


def _expand_shorthand(value: Any) -> Any:
    """Read a plain list as a choice, a plain value as a constant."""
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
