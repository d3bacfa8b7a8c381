"""The default experiment, with all unchanged keys as comments."""

import textwrap
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from nnlo_lib.config.docgen.schema_tree import (
    EXPERIMENT_SCHEMA,
    Schema,
    defaults,
    description_of,
    discriminator_value,
    example,
    fields,
    inline_yaml,
    member_blocks,
)
from nnlo_lib.config.user_class import USER_CLASS

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
        key: name of the key.
        field: schema of the key.
        chosen: settings of the default experiment at this level.
        default: default settings at this level.
        indent: spaces before the key.
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
        field: schema of the key.
        chosen: settings of the section in the default experiment.
        value: settings of the section, including defaults.
        indent: spaces before the keys.
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
