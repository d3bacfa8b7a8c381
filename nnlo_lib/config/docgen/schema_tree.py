"""Questions to the JSON schema that pydantic makes of the experiment: which keys, which blocks, which meaning."""

from typing import Any

import yaml

from nnlo_lib.config import Experiment
from nnlo_lib.config.user_class import USER_CLASS, USER_CLASS_PATTERN

Schema = dict[str, Any]
EXPERIMENT_SCHEMA: Schema = Experiment.model_json_schema()


def fields(block: Schema) -> Schema:
    """Return a block's keys, its name first."""
    known: Schema = block["properties"]
    return {key: known[key] for key in sorted(known, key=lambda key: key != "name")}


def member_blocks(field: Schema) -> list[Schema]:
    """Return the blocks that a key may hold, itself, in a list or in a mapping: none, one, or those of a tagged union."""
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
    """Return the name that chooses a member of a tagged union; of other blocks the empty string."""
    name = member.get("properties", {}).get("name", {})
    return USER_CLASS if name.get("pattern") == USER_CLASS_PATTERN else str(name.get("const", ""))


def defaults(block: Schema) -> Schema:
    """Return what a block holds where nothing is written; a key that must be written is left out."""
    return {key: field["default"] for key, field in fields(block).items() if "default" in field}


def example(block: Schema) -> Schema:
    """Return a block that can be used as it is: its defaults, and an example of what must be written."""
    shown = {key: field["examples"][0] for key, field in fields(block).items() if "examples" in field}
    return {key: {**defaults(block), **shown}[key] for key in fields(block) if key in defaults(block) | shown}


def description_of(field: Schema) -> str:
    """Return a key's description; a block's own is the fuller one."""
    if "$ref" in field:
        return str(member_blocks(field)[0]["description"])
    return str(field.get("description", "Which one."))


def inline_yaml(value: Any) -> str:
    """Write a value as YAML in one line."""
    text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10_000)
    return text.removesuffix("\n").removesuffix("\n...")
