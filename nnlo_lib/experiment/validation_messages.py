"""Messages for pydantic's validation errors, each with the key in the experiment file."""

import json
import textwrap
from collections.abc import Iterable, Iterator
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from nnlo_lib.config import ConfigModel, block_types, suggest_name
from nnlo_lib.config.user_class import BUILT_IN, USER_CLASS, UserClassConfig
from nnlo_lib.experiment.yaml_source import KeyPath

Mistake = tuple[KeyPath, str]


def validation_mistakes(model: type[ConfigModel], settings: Any) -> Iterator[Mistake]:
    """Yield the mistakes for which the model rejects these settings."""
    try:
        model.model_validate(settings)
    except ValidationError as error:
        yield from describe_validation_error(model, error)


def describe_validation_error(model: type[ConfigModel], error: ValidationError) -> Iterator[Mistake]:
    """Yield a message for each rejected key; errors inside a section replace the error of the section itself."""
    sentences: dict[KeyPath, list[str]] = {}
    for detail in error.errors():
        key, known = _follow(model, detail["loc"])
        sentences.setdefault((*key, *_below(detail)), []).append(_sentence(detail, known))
    sections = {key[:depth] for key in sentences for depth in range(len(key))}
    for key, messages in sentences.items():
        if key not in sections:
            yield key, "; or ".join(messages)


def _follow(model: type[ConfigModel], location: Iterable[str | int]) -> tuple[KeyPath, set[str]]:
    """Return the key in the file for pydantic's location, and the known names of its section.

    Pydantic's location also contains the name of a union's member, and `[key]`, which the file does not
    contain.
    """
    key: KeyPath = ()
    inside, known, untagged, keyed = [model], set[str](), False, False
    for part in location:
        if keyed:
            # Key of a mapping, for example the name of a run.
            key, keyed = (*key, str(part)), False
        elif part in (BUILT_IN, USER_CLASS) and inside:
            inside = [block for block in inside if issubclass(block, UserClassConfig) == (part == USER_CLASS)]
        # In a union of sections with names, pydantic inserts the name of the selected section.
        elif len(inside) > 1:
            inside = [block for block in inside if block.model_fields["name"].default == part]
        # In a union of types without names, pydantic inserts the name of the type.
        elif untagged:
            untagged = False
        # Pydantic marks an error in a key of a mapping by `[key]`.
        elif part != "[key]":
            fields = {name: field for block in inside for name, field in block.model_fields.items()}
            annotation = fields[str(part)].annotation if part in fields else None
            inside, untagged = list(block_types(annotation)), _is_untagged(annotation)
            keyed = get_origin(annotation) is dict
            key, known = (*key, str(part)), set(fields)
    return key, known


def _is_untagged(annotation: Any) -> bool:
    """Return True for a union of several types of which at most one is a ConfigModel."""
    members = [member for member in get_args(annotation) if member is not NoneType]
    return (
        get_origin(annotation) in (Union, UnionType)
        and len(members) > 1
        and len(list(block_types(annotation))) < 2
    )


def _below(detail: ErrorDetails) -> KeyPath:
    """Return the key of the error relative to pydantic's location (usually empty)."""
    return ("name",) if detail["type"] == "union_tag_invalid" else detail.get("ctx", {}).get("at", ())


def _sentence(detail: ErrorDetails, known: Iterable[str]) -> str:
    context, given = detail.get("ctx", {}), detail["input"]
    match detail["type"]:
        case "refused":
            return str(context["message"])
        case "extra_forbidden":
            word = str(detail["loc"][-1])
            return f"unknown key '{word}'; {suggest_name(word, known)}"
        case "literal_error":
            return f"must be one of {context['expected']}, not {shown(given)}"
        case "union_tag_invalid":
            names = context["expected_tags"].replace("'", "").split(", ")
            own = ", or path.py:Class of your own" if BUILT_IN in detail["loc"] else ""
            return f"unknown name '{context['tag']}'; {suggest_name(str(context['tag']), names)}{own}"
        case "union_tag_not_found":
            return "missing `name`; add `name: ...` to select the kind (docs/reference/experiment.md)"
        case "too_short":
            return f"needs at least {context['min_length']} valid value, not {shown(given)}"
        case "missing":
            return "missing; set this key"
        case "none_required":
            return "not supported; remove this key"
        case "string_pattern_mismatch":
            allowed = "up to 200 letters, digits, '_', '.' or '-'"
            return f"must consist of {allowed}, not {shown(given)}, because it names a folder"
        case "model_type" | "model_attributes_type" | "dict_type":
            return f"must be a section of keys, such as {{key: value}}, not {shown(given)}"
        case _:
            what = detail["msg"].replace("Input should", "should").replace("tuple", "list")
            return f"{what} (this is {shown(given)})"


def shown(value: Any) -> str:
    """Return a value of the file as JSON, shortened to fit a line."""
    return textwrap.shorten(json.dumps(value, default=str, ensure_ascii=False), 60)
