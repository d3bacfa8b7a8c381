"""Reference pages of the keys, the algorithms, the sub-commands, and the effects of edits, line by line."""

import argparse
import ast
import inspect
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

from nnlo_lib.config import Experiment
from nnlo_lib.config.algorithm import ALGORITHM_CONFIGS, ALGORITHMS
from nnlo_lib.config.base import EditEffect, keys_with
from nnlo_lib.config.docgen.schema import (
    EXPERIMENT_SCHEMA,
    Schema,
    defaults,
    description_of,
    discriminator_value,
    fields,
    member_blocks,
)
from nnlo_lib.core.text_format import inline_yaml

HELP_WIDTH = 120
NNLO_LIB = Path(__file__).parents[2]
ALGORITHM_HEADINGS = (
    "algorithm", "graph must be", "compression", "batch norm", "groups", "masters", "schedule", "asynchronous", "one model", "elastic", "`weight_clip`", "`critic_steps`", "ranks",
)  # fmt: skip


def experiment_keys() -> Iterator[str]:
    """Yield a table of the top-level keys, and a part for each section of the experiment file."""
    yield from ("## Top-level keys", "", *_table(EXPERIMENT_SCHEMA))
    sections: dict[str, str] = {}
    for name, text in _sections(EXPERIMENT_SCHEMA):
        # A section can occur at several keys, but the page describes it once.
        sections.setdefault(name, text)
    yield from sections.values()


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
        # Sections of different keys can have the same name, such as `random`, but each is one object of the schema.
        if id(member) not in named:
            named[id(member)] = f"{key}: {name}" if name in named.values() else name
    return named


def _members(block: Schema) -> Iterator[tuple[str, Schema]]:
    for key, field in fields(block).items():
        for member in member_blocks(field):
            yield key, member
            yield from _members(member)


def _table(block: Schema) -> Iterator[str]:
    yield from (table_row("key", "type and limits", "default", "meaning"), table_row(*["---"] * 4))
    for key, field in fields(block).items():
        default = f"`{inline_yaml(_short(field))}`" if "default" in field else "required"
        # A section without alternatives shows its defaults itself.
        yield table_row(
            f"`{key}`", _kind(key, field), "" if "$ref" in field else default, description_of(field)
        )


def _kind(key: str, field: Schema) -> str:
    """Return type and limits of a key in words."""
    match field:
        case {"$ref": _}:
            (member,) = member_blocks(field)
            return f"[{discriminator_value(member) or 'section'}](#{_names()[id(member)].replace(': ', '-')})"
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


def algorithms() -> Iterator[str]:
    """Yield the matrix of requirements and features, and a section for each algorithm."""
    yield from ("## Requirements and features", "")
    yield table_row(*ALGORITHM_HEADINGS)
    yield table_row(*["---"] * len(ALGORITHM_HEADINGS))
    for name, row in ALGORITHMS.items():
        yield table_row(
            f"[`{name}`](#{name})", ", ".join(row.graph_properties) or "-", row.compression, row.batch_norm_buffers, _yes(row.supports_worker_groups),
            _yes(row.supports_server_tree), _yes(row.supports_schedule), _yes(row.asynchronous), _yes(row.one_model), _yes(row.elastic),
            row.keeps_weight_clip, row.keeps_critic_steps, f"{row.min_ranks}+",
        )  # fmt: skip
    for name in ALGORITHMS:
        yield from _algorithm_section(name)


def _yes(holds: bool) -> str:
    return "yes" if holds else "no"


def _algorithm_section(name: str) -> Iterator[str]:
    yield f"\n## `{name}`\n"
    module, _, class_name = ALGORITHM_CONFIGS[name].implementation.partition(":")
    source = NNLO_LIB.parent.joinpath(*module.split(".")).with_suffix(".py")
    path = source.relative_to(NNLO_LIB.parent)
    yield f"[{path}](../../{path}), [its keys](experiment.md#{name})\n"
    # Parsed instead of imported, because the implementations import torch.
    tree = ast.parse(source.read_text(encoding="utf-8"))
    found = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == class_name)
    for paragraph in (ast.get_docstring(found) or "").split("\n\n"):
        if paragraph.startswith("    "):
            yield f"```text\n{inspect.cleandoc(paragraph)}\n```\n"
        else:
            yield f"{paragraph}\n"


def sub_commands(parser: argparse.ArgumentParser, level: int = 2) -> Iterator[str]:
    """Yield a section with the help of each sub-command of `parser`."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                # The same lines on each terminal.
                command.formatter_class = partial(argparse.RawDescriptionHelpFormatter, width=HELP_WIDTH)
                yield f"{'#' * level} `{command.prog}`\n\n```text\n{command.format_help()}```\n"
                yield from sub_commands(command, level + 1)


def keys_by_effect() -> Iterator[str]:
    """Yield a table of the keys with each effect of an edit."""
    yield from ("## Keys", "", table_row("effect", "keys and sections"), table_row("---", "---"))
    for effect in EditEffect:
        yield table_row(effect.value, ", ".join(f"`{key}`" for key in keys_with(Experiment, effect)))


def table_row(*cells: str) -> str:
    """Return a row of a table in Markdown."""
    return f"| {' | '.join(cells)} |"
