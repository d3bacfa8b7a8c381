"""Reference page of the experiment file: a hand-written introduction, then a table for each section."""

from collections.abc import Iterator
from functools import cache
from typing import Any

from nnlo_lib.config.docgen.schema_tree import (
    EXPERIMENT_SCHEMA,
    Schema,
    defaults,
    description_of,
    discriminator_value,
    fields,
    inline_yaml,
    member_blocks,
)

MARKER = "<!-- From here on written by `nnlo docs` from nnlo_lib/config/: edit there. -->\n"


def reference_page(current: str) -> str:
    """Return the page: the introduction of `current`, and a part for each section of the experiment file."""
    introduction = current.partition(MARKER)[0]
    sections: dict[str, str] = {}
    for name, text in _sections(EXPERIMENT_SCHEMA):
        # A section can occur at several keys, but the page describes it once.
        sections.setdefault(name, text)
    whole = ["## Top-level keys", "", *_table(EXPERIMENT_SCHEMA), *sections.values(), ""]
    return "\n".join([introduction + MARKER, *whole])


def _sections(block: Schema) -> Iterator[tuple[str, str]]:
    """Yield name and text of each section below `block`, recursively."""
    for key, field in fields(block).items():
        choices = member_blocks(field)
        if len(choices) > 1:
            yield key, f"\n## `{key}`\n\n{description_of(field)}"
        for member in choices:
            name, level = _names()[id(member)], "##" if len(choices) == 1 else "###"
            yield name, "\n".join([f"\n{level} `{name}`\n", member["description"], "", *_table(member)])
            yield from _sections(member)


@cache
def _names() -> dict[int, str]:
    """Return the unique names of all sections by id(): `name` of the section or its key, or both if that is taken."""
    named: dict[int, str] = {}
    for key, member in _members(EXPERIMENT_SCHEMA):
        name = discriminator_value(member) or key
        # Sections of different keys can have the same name, such as `random`, but each section is one object
        # of the schema.
        if id(member) not in named:
            named[id(member)] = f"{key}: {name}" if name in named.values() else name
    return named


def _members(block: Schema) -> Iterator[tuple[str, Schema]]:
    for key, field in fields(block).items():
        for member in member_blocks(field):
            yield key, member
            yield from _members(member)


def _link(text: str, member: Schema) -> str:
    return f"[{text}](#{_names()[id(member)].replace(': ', '-')})"


def _table(block: Schema) -> Iterator[str]:
    yield "| key | type and limits | default | meaning |"
    yield "| --- | --- | --- | --- |"
    for key, field in fields(block).items():
        yield f"| `{key}` | {_kind(key, field)} | {_default(field)} | {description_of(field)} |"


def _default(field: Schema) -> str:
    """Return the default in the table; empty for a section without alternatives."""
    if "$ref" in field:
        return ""
    return f"`{inline_yaml(_short(field))}`" if "default" in field else "required"


def _kind(key: str, field: Schema) -> str:
    """Return type and limits of a key in words."""
    match field:
        case {"$ref": _}:
            (member,) = member_blocks(field)
            return _link(discriminator_value(member) or "section", member)
        case {"anyOf": choices} | {"oneOf": choices}:
            return " or ".join(dict.fromkeys(_kind(key, choice) for choice in choices))
        case {"enum": names}:
            return " or ".join(f"`{name}`" for name in names)
        case {"const": name}:
            return f"`{name}`"
        case {"type": "array", "items": items}:
            return f"{'non-empty ' * field.get('minItems', 0)}list of: {_kind(key, items)}"
        case {"type": "array", "prefixItems": items}:
            return f"list of {len(items)}: {_kind(key, items[0])}"
        case {"type": "object", "additionalProperties": {"anyOf": [{"$ref": _} as inner, *_]}}:
            return f"mapping to {_kind(key, inner)}, list or value"
        case {"type": "object"}:
            return "mapping"
        case {"type": kind}:
            return f"{kind}{_limits(field)}"
    return str(field["description"])


def _limits(field: Schema) -> str:
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    return ",".join(f" {sign} {field[limit]}" for limit, sign in signs.items() if limit in field)


def _short(field: Schema) -> Any:
    """Return the default of a key; for a section only the settings that differ from the section's defaults."""
    default = field["default"]
    for member in member_blocks(field):
        if isinstance(default, dict) and discriminator_value(member) == default.get("name"):
            own = defaults(member)
            return {key: default[key] for key in own if key == "name" or default[key] != own[key]}
    return default
