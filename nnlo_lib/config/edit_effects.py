"""Effect of an edit of each key of the experiment file on results that exist already.

A field declares its effect beside its type, as in `epochs: Annotated[int, EditEffect.RESUME]`. The keys of a section
have the effect of the section unless they declare another one; the effect is RETRAIN if none is declared.
"""

from collections.abc import Iterator
from enum import Enum
from functools import cache
from typing import Any

from nnlo_lib.config.base import ConfigModel, block_types


class EditEffect(Enum):
    """What an edit causes; each value names the effect in the documentation."""

    RETRAIN = "retrain"
    RESUME = "resume"
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
        name: without_keys(value, tuple(_below(name, keys)))
        for name, value in settings.items()
        if name not in keys
    }


def _below(name: str, keys: tuple[str, ...]) -> Iterator[str]:
    return (key.removeprefix(f"{name}.") for key in keys if key.startswith(f"{name}."))
