"""The JSON schema of the experiment: access to its sections, the default file, and the schema for editors."""

import textwrap
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import yaml

from nnlo_lib.config import NAME_PATTERN, Experiment, Run
from nnlo_lib.config.base import USER_CLASS, USER_CLASS_PATTERN

Schema = dict[str, Any]
EXPERIMENT_SCHEMA: Schema = Experiment.model_json_schema()
QUICKSTART: dict[str, Any] = {
    "name": "quickstart",
    "model": {"name": "simplecnn", "args": {"dropout": 0.25}},
    "train": {"epochs": 20, "batch_size": 16, "optimizer": {"name": "sgd", "lr": 0.02, "momentum": 0.9}},
    "seeds": [1, 2, 3],
    "runs": {
        "allreduce": {"algorithm": {"name": "allreduce"}, "parallel": {"ranks": 2}},
        "downpour": {"algorithm": {"name": "downpour"}, "parallel": {"ranks": 3}},
    },
}
HEADER = """\
# yaml-language-server: $schema=../workflow/schemas/experiment.schema.json
#
# The default experiment: `make run` runs it. To make your own, copy this file, edit the copy, and
#   nnlo check mine.yaml
#   snakemake --profile profiles/local --configfile mine.yaml
#
# This file lists all keys. A line that starts with # shows a default: to change it, remove the # (and the #
# of the section's first line). Reference: docs/reference/experiment.md. `nnlo docs` generates this file.
"""
COLUMN, WIDTH = 32, 110  # start of the comments and maximum length of a line, in characters


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


def default_file() -> str:
    """Return the text of the default experiment."""
    groups = [
        "\n".join(_setting(key, field, QUICKSTART, {}, ""))
        for key, field in fields(EXPERIMENT_SCHEMA).items()
    ]
    gaps = ("\n" if "\n" not in above + below else "\n\n" for above, below in pairwise(groups))
    return HEADER + "".join(f"{gap}{group}" for gap, group in zip(["\n", *gaps], groups, strict=True)) + "\n"


def _setting(
    key: str, field: Schema, chosen: Mapping[str, Any], default: Mapping[str, Any], indent: str
) -> Iterator[str]:
    """Yield the lines of one key; a key that is not in `chosen` starts with a #.

    Args:
        chosen: settings of the default experiment at the level of the key.
        default: default settings at this level.
    """
    value = chosen.get(key, default.get(key, field["default"]))
    start = f"{'' if key in chosen else '#'}{indent}{key}:"
    inside = indent + "  "
    if isinstance(value, Mapping) and member_blocks(field):
        yield from _commented(start, description_of(field))
        yield from _block(field, chosen.get(key, {}), value, inside)
    elif key == "runs":
        yield from _commented(start, description_of(field))
        yield from (f"{inside}{name}: {inline_yaml(changes)}" for name, changes in value.items())
    else:
        yield from _commented(f"{start} {inline_yaml(value)}", description_of(field))
        yield from (
            f"{inside}# or {inline_yaml(shown)}" for shown in field.get("examples", ()) if value is None
        )


def _block(field: Schema, chosen: Mapping[str, Any], value: Mapping[str, Any], indent: str) -> Iterator[str]:
    """Yield the lines of the section that `value` selects, then one comment for each alternative section.

    An alternative shows only the keys that differ from the selected section.

    Args:
        chosen: settings of the section in the default experiment.
        value: settings of the section, including defaults.
    """
    others = {discriminator_value(member): member for member in member_blocks(field)}
    # The commented alternatives are valid settings, but a user's class requires a file.
    others.pop(USER_CLASS, None)
    member = others.pop(value.get("name", "") if len(others) > 1 else next(iter(others)))
    for key, inner in fields(member).items():
        yield from _setting(key, inner, chosen, value, indent)
    shown = defaults(member)
    for other in others.values():
        differs = {
            key: value for key, value in example(other).items() if key not in shown or shown[key] != value
        }
        lines = textwrap.wrap(inline_yaml(differs), WIDTH - len(indent) - len("# or "))
        yield from (f"{indent}#{'    ' if number else ' or '}{line}" for number, line in enumerate(lines))


def _commented(setting: str, comment: str) -> Iterator[str]:
    """Yield the setting with a comment at its right, wrapped to several lines if necessary."""
    for line in textwrap.wrap(comment, WIDTH - COLUMN - 2):
        yield f"{setting:<{COLUMN}}# {line}"
        setting = ""


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
    for properties in (whole["properties"], part["properties"]):
        for key, short in (("model", "name"), ("data", "dataset")):
            place = properties[key].pop("$ref")
            properties[key]["anyOf"] = [{"$ref": f"{place}/properties/{short}"}, {"$ref": place}]
    for resources in (whole["$defs"]["ResourcesConfig"], parts["PartResourcesConfig"]):
        resources["properties"]["mem"] = resources["properties"]["mem_mb"]  # its short form
    folds = whole["$defs"]["SearchConfig"]["properties"]["folds"]
    place = folds.pop("$ref")
    folds["anyOf"] = [{"$ref": f"{place}/properties/k"}, {"$ref": place}]
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
