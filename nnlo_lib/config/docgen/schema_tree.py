"""Access to the keys, sections and descriptions in the JSON schema that pydantic generates for the experiment."""

from typing import Any

import yaml

from nnlo_lib.config import Experiment
from nnlo_lib.config.user_class import USER_CLASS, USER_CLASS_PATTERN

Schema = dict[str, Any]
EXPERIMENT_SCHEMA: Schema = Experiment.model_json_schema()


def fields(block: Schema) -> Schema:
    """Return the keys of a section, `name` first."""
    known: Schema = block["properties"]
    return {key: known[key] for key in sorted(known, key=lambda key: key != "name")}


def member_blocks(field: Schema) -> list[Schema]:
    """Return the schemas of the sections that a key accepts, directly, in a list or in a mapping."""
    if "$ref" in field:
        block = EXPERIMENT_SCHEMA["$defs"][field["$ref"].rpartition("/")[2]]
        return [block] if "properties" in block else []
    if "$ref" in field.get("items", {}):
        return member_blocks(field["items"])
    if isinstance(field.get("additionalProperties"), dict):
        return member_blocks(field["additionalProperties"])
    return [
        member for part in field.get("anyOf", []) + field.get("oneOf", []) for member in member_blocks(part)
    ]


def discriminator_value(member: Schema) -> str:
    """Return the `name` that selects a member of a tagged union; an empty string for other sections."""
    name = member.get("properties", {}).get("name", {})
    return USER_CLASS if name.get("pattern") == USER_CLASS_PATTERN else str(name.get("const", ""))


def defaults(block: Schema) -> Schema:
    """Return the defaults of a section, without required keys."""
    return {key: field["default"] for key, field in fields(block).items() if "default" in field}


def example(block: Schema) -> Schema:
    """Return valid settings of a section: its defaults, and examples of required keys."""
    shown = {key: field["examples"][0] for key, field in fields(block).items() if "examples" in field}
    return {key: {**defaults(block), **shown}[key] for key in fields(block) if key in defaults(block) | shown}


def description_of(field: Schema) -> str:
    """Return the description of a key; for a section, the docstring of its class."""
    if "$ref" in field:
        return str(member_blocks(field)[0]["description"])
    return str(field.get("description", "Selects the variant of this section."))


def inline_yaml(value: Any) -> str:
    """Return a value as YAML in one line."""
    # PyYAML ends a single scalar with the line `...`.
    text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10_000)
    return text.removesuffix("\n").removesuffix("\n...")
