"""Blocks of an experiment as a person would write them: only what differs from the defaults."""

from typing import Any, Literal, get_origin

from nnlo_lib.config import Run, Strict


def written(value: Any) -> Any:
    """Return what must be written of a block, so that reading it gives the same block."""
    if isinstance(value, tuple | list):
        return [written(each) for each in value]
    if isinstance(value, dict):
        return {key: written(each) for key, each in value.items()}
    if not isinstance(value, Strict):
        return value
    chosen = value.filled if isinstance(value, Run) else ()  # by its problem
    return {
        key: written(getattr(value, key))
        for key, field in type(value).model_fields.items()
        if key not in chosen
        if _is_tag(key, field.annotation)
        or getattr(value, key) != field.get_default(call_default_factory=True)
    }


def _is_tag(key: str, annotation: Any) -> bool:
    return key == "name" and get_origin(annotation) is Literal
