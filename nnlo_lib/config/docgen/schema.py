"""The JSON schema of the experiment: access to its sections, and the schema for editors."""

import ast
import inspect
from functools import cache
from itertools import pairwise
from typing import Any

from pydantic.json_schema import GenerateJsonSchema
from pydantic_core.core_schema import ModelSchema

from nnlo_lib.config import NAME_PATTERN, ConfigModel, Experiment, Run
from nnlo_lib.config.base import USER_CLASS, USER_CLASS_PATTERN

Schema = dict[str, Any]


class DescribedJsonSchema(GenerateJsonSchema):
    """The texts below the keys of a section describe them; pydantic itself would read them at each start of nnlo."""

    def model_schema(self, schema: ModelSchema) -> Schema:
        """Return the schema of a section, with the text below each key as its description."""
        section = super().model_schema(schema)
        for block in schema["cls"].__mro__:
            for key, text in _texts(block).items() if issubclass(block, ConfigModel) else ():
                section["properties"][key].setdefault("description", text)
        return section


@cache
def _texts(block: type[ConfigModel]) -> dict[str, str]:
    """Return the text below each key that a section defines itself."""
    (definition,) = ast.parse(inspect.getsource(block)).body
    texts = {}
    for key, text in pairwise(definition.body):  # type: ignore[attr-defined]
        match key, text:
            case ast.AnnAssign(target=ast.Name(name)), ast.Expr(value=ast.Constant(str(words))):
                texts[name] = " ".join(words.split())
    return texts


EXPERIMENT_SCHEMA: Schema = Experiment.model_json_schema(schema_generator=DescribedJsonSchema)


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


def description_of(field: Schema) -> str:
    """Return the description of a key; for a section, the first paragraph of its class's docstring."""
    if "$ref" in field:
        return str(member_blocks(field)[0]["description"]).partition("\n\n")[0]
    return str(field.get("description", "Selects the variant of this section."))


def experiment_schema() -> Schema:
    """Return the JSON schema of an experiment file.

    Entries of `runs` can omit any key. Their sections are therefore separate definitions with the prefix `Part`.
    """
    whole: Schema = _tidy(EXPERIMENT_SCHEMA, "title", "discriminator")
    part = _tidy(
        Run.model_json_schema(ref_template="#/$defs/Part{model}", schema_generator=DescribedJsonSchema),
        "title",
        "discriminator",
        "default",
        "required",
    )
    parts = {f"Part{name}": block for name, block in part.pop("$defs").items()}
    for block in whole["$defs"].values():
        if discriminator_value(block):
            block["required"] = ["name", *(key for key in block.get("required", []) if key != "name")]
    for properties in (whole["properties"], part["properties"]):
        for key, short in (("model", "name"), ("data", "dataset")):
            place = properties[key].pop("$ref")
            properties[key]["anyOf"] = [{"$ref": f"{place}/properties/{short}"}, {"$ref": place}]
    for resources in (whole["$defs"]["ResourcesConfig"], parts["PartResourcesConfig"]):
        resources["properties"]["mem"] = resources["properties"]["mem_mb"]  # its short form
    folds, objective = (whole["$defs"]["SearchConfig"]["properties"][key] for key in ("folds", "objective"))
    place = folds.pop("$ref")
    folds["anyOf"] = [{"$ref": f"{place}/properties/k"}, {"$ref": place}]
    place = objective.pop("$ref")
    objective["anyOf"] = [{"type": "array", "items": {"$ref": place}}, {"$ref": place}]
    runs = whole["properties"]["runs"]
    # pydantic describes the entries as arbitrary mappings, because a run is validated after its merge with the base.
    del runs["patternProperties"]
    runs |= {"propertyNames": {"pattern": NAME_PATTERN}, "additionalProperties": {"$ref": "#/$defs/PartRun"}}
    whole["$defs"] |= parts | {
        "PartRun": part | {"description": "Settings of one run that override the base."}
    }
    whole["patternProperties"] = {"^x-": {"description": "Place for anchors of YAML; not read."}}
    head: Schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "NNLO experiment"}
    return head | whole


def _tidy(node: Any, *dropped: str) -> Any:
    """Return the schema without the `dropped` keywords, with `anyOf` instead of `oneOf`."""
    if isinstance(node, list):
        return [_tidy(item, *dropped) for item in node]
    if not isinstance(node, dict):
        return node
    kept = {
        "anyOf" if key == "oneOf" else key: _tidy(value, *dropped)
        for key, value in node.items()
        if key not in dropped
    }
    if names := node.get("discriminator", {}).get("mapping"):
        # A section may be written as its name (experiment.load.with_sections).
        kept["anyOf"] = [{"enum": [*names]}, *kept["anyOf"]]
    return kept
