"""JSON schema with which editors complete and check an experiment file."""

from typing import Any

from nnlo_lib.config import NAME_PATTERN, Run
from nnlo_lib.config.docgen.schema_tree import EXPERIMENT_SCHEMA, Schema, discriminator_value


def experiment_schema() -> Schema:
    """Return the JSON schema of an experiment file.

    Entries of `runs` can omit any key. Their sections are therefore separate definitions with the prefix `Part`.
    """
    whole: Schema = _tidy(EXPERIMENT_SCHEMA, "title", "discriminator")
    part = _tidy(
        Run.model_json_schema(ref_template="#/$defs/Part{model}"),
        "title",
        "discriminator",
        "default",
        "required",
    )
    parts = {f"Part{name}": block for name, block in part.pop("$defs").items()}
    for block in whole["$defs"].values():
        if discriminator_value(block):
            block["required"] = ["name", *(key for key in block.get("required", []) if key != "name")]
    runs = whole["properties"]["runs"]
    # pydantic describes the entries as arbitrary mappings, because a run is validated after its merge with
    # the base.
    del runs["patternProperties"]
    runs |= {"propertyNames": {"pattern": NAME_PATTERN}, "additionalProperties": {"$ref": "#/$defs/PartRun"}}
    whole["$defs"] |= parts | {
        "PartRun": part | {"description": "Settings of one run that override the base."}
    }
    head: Schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "NNLO experiment"}
    return head | whole


def _tidy(node: Any, *dropped: str) -> Any:
    """Return the schema without the `dropped` keywords, with `anyOf` instead of `oneOf`."""
    if isinstance(node, list):
        return [_tidy(item, *dropped) for item in node]
    if not isinstance(node, dict):
        return node
    kept = {key: value for key, value in node.items() if key not in dropped}
    return {"anyOf" if key == "oneOf" else key: _tidy(value, *dropped) for key, value in kept.items()}
