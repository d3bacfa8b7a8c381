"""The default experiment, with every key that it leaves alone in a comment."""

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
# Every key is here. A line that starts with # shows a default: remove the # (and that of the block's
# own line) to change it. docs/reference/experiment.md says more. `nnlo docs` wrote this file.
"""
COLUMN, WIDTH = 32, 110  # where comments start, where lines end


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
    """Yield the lines of one key: what is chosen as it is, what is left alone behind a #."""
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
    """Yield the lines of the block that `value` chooses, and those of each that it could be instead.

    Those leave out what they have like the chosen one.
    """
    others = {discriminator_value(member): member for member in member_blocks(field)}
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
    """Put a comment beside a setting, in as many lines as it needs."""
    for line in textwrap.wrap(comment, WIDTH - COLUMN - 2):
        yield f"{setting:<{COLUMN}}# {line}"
        setting = ""
