"""Reference pages of the keys, the algorithms, the sub-commands, and the effects of edits, line by line."""

import argparse
import ast
import inspect
import re
from collections import Counter
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
# What the introduction of the page says once: the options --help and --set.
SAID_ABOVE = re.compile(r"(\noptions:)?\n +-h, .*(?=\n\n)|\n +(-h,|--set KEY=VALUE .*train\.epochs).*")
SHARED_BY = 0.7  # a key that more of the variants have is described once
NNLO_LIB = Path(__file__).parents[2]
# Keys on the first page of the reference: the top-level values, and what most experiments set in sections.
EVERYDAY_KEYS = (
    "name", "seeds", "folds", "runs", "data.dataset", "data.source", "data.reader", "data.validation", "model", "train.epochs", "train.batch_size", "train.optimizer",
    "train.schedule", "train.early_stopping", "loss", "loss_weights", "metrics", "parallel.ranks", "parallel.gpus_per_rank", "resources.runtime", "resources.mem_mb",
)  # fmt: skip
TABLE_HEAD = ("| key | type | default | meaning |", "| --- | --- | --- | --- |")
TOP_SECTIONS = {key: field for key, field in fields(EXPERIMENT_SCHEMA).items() if member_blocks(field)}
ALGORITHM_HEADINGS = (
    "algorithm", "graph must be", "compression", "batch norm", "groups", "masters", "schedule", "asynchronous", "one model", "elastic", "`weight_clip`", "`critic_steps`", "ranks",
)  # fmt: skip


def first_page() -> Iterator[str]:
    """Yield a table of the keys that most experiments need, and one of the sections with links to their pages."""
    yield from ("## Keys that most experiments need", "", *TABLE_HEAD)
    for path in EVERYDAY_KEYS:
        page, _, key = path.rpartition(".")
        (block,) = member_blocks(fields(EXPERIMENT_SCHEMA)[page]) if page else [EXPERIMENT_SCHEMA]
        field = fields(block)[key]
        link = f"[section](experiment/{page or key}.md#{key})" if member_blocks(field) else ""
        yield _row(path, field, link)
    yield from ("", "## Sections", "", table_row("section", "meaning", "has"), table_row(*["---"] * 3))
    for key, field in TOP_SECTIONS.items():
        members = member_blocks(field)
        names = fields(members[0]) if len(members) == 1 else map(discriminator_value, members)
        listed = ", ".join(f"`{name}`" for name in names)
        yield table_row(f"[`{key}`](experiment/{key}.md)", description_of(field), listed)


def section_pages() -> Iterator[tuple[str, list[str]]]:
    """Yield name and lines of the page of each top-level section."""
    described: set[str] = set()
    for page, top in TOP_SECTIONS.items():
        lines = []
        for key, field in _section_keys({page: top}):
            # A section can occur at several keys, but only one page describes it.
            members = {_places()[id(member)][1]: member for member in member_blocks(field)}
            rows = {name: _rows(member) for name, member in members.items() if name not in described}
            described |= {*members}
            counts = Counter(row for own in rows.values() for row in own)
            shared = [row for row, count in counts.items() if count > max(1, SHARED_BY * len(rows))]
            if len(rows) > 1:
                others = [name.rpartition(": ")[2] for name, own in rows.items() if not {*shared} <= {*own}]
                lines += [f"\n## `{key}`\n", description_of(field)]
                but = f" except `{'`, `'.join(others)}`" if others else ""
                lines += [f"\nKeys of all{but}:", *_table(shared)] if shared else []
            for name, own in rows.items():
                lines += [f"\n{'###' if len(rows) > 1 else '##'} `{name}`\n", members[name]["description"]]
                lines += _table([row for row in own if row not in shared])
        yield page, lines


def _section_keys(keys: Schema) -> Iterator[tuple[str, Schema]]:
    """Yield the keys of `keys`, and of their sections recursively, that are sections."""
    for key, field in keys.items():
        yield from [(key, field)] if member_blocks(field) else ()
        for member in member_blocks(field):
            yield from _section_keys(fields(member))


@cache
def _places() -> dict[int, tuple[str, str]]:
    """Return page and unique name of all sections by id(): `name` of the section or its key, or both if that is taken."""
    places: dict[int, tuple[str, str]] = {}
    for page, top in TOP_SECTIONS.items():
        for key, field in _section_keys({page: top}):
            # Sections of different keys can have the same name, such as `random`, but each is one object of the schema.
            for member in (each for each in member_blocks(field) if id(each) not in places):
                name = discriminator_value(member) or key
                is_taken = name in (other for _, other in places.values())
                places[id(member)] = page, f"{key}: {name}" if is_taken else name
    return places


def _table(rows: list[str]) -> Iterator[str]:
    yield from ("", *TABLE_HEAD, *rows) if rows else ()


def _rows(block: Schema) -> list[str]:
    """Return a row for each key of a section but the constant `name`, which is its heading."""
    return [_row(key, field) for key, field in fields(block).items() if "const" not in field]


def _row(key: str, field: Schema, kind: str = "") -> str:
    default = f"`{inline_yaml(_short(field))}`" if "default" in field else "required"
    # A section without alternatives shows its defaults itself.
    shown = "" if "$ref" in field else default
    return table_row(f"`{key}`", kind or _kind(key, field), shown, description_of(field))


def _kind(key: str, field: Schema) -> str:
    """Return type and limits of a key in words."""
    match field:
        case {"$ref": _}:
            (member,) = member_blocks(field)
            page, name = _places()[id(member)]
            return f"[{discriminator_value(member) or 'section'}]({page}.md#{name.replace(': ', '-')})"
        case {"anyOf": choices} | {"oneOf": choices}:
            comma_or = ", " if len(choices) > 3 else " or "
            return comma_or.join(dict.fromkeys(_kind(key, choice) for choice in choices))
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
            signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
            limits = [f" {sign} {field[limit]}" for limit, sign in signs.items() if limit in field]
            return f"{kind}{','.join(limits)}"
    return str(field["description"])


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
        flags = (row.supports_worker_groups, row.supports_server_tree, row.supports_schedule, row.asynchronous, row.one_model, row.elastic)  # fmt: skip
        yield table_row(
            f"[`{name}`](#{name})", ", ".join(row.graph_properties) or "-", row.compression, row.batch_norm_buffers,
            *("yes" if flag else "no" for flag in flags), row.keeps_weight_clip, row.keeps_critic_steps, f"{row.min_ranks}+",
        )  # fmt: skip
    for name in ALGORITHMS:
        yield f"\n## `{name}`\n"
        module, _, class_name = ALGORITHM_CONFIGS[name].implementation.partition(":")
        path = f"{module.replace('.', '/')}.py"
        yield f"[{path}](../../{path}), [its keys](experiment/algorithm.md#{name})\n"
        # Parsed instead of imported, because the implementations import torch.
        tree = ast.parse((NNLO_LIB.parent / path).read_text(encoding="utf-8"))
        found = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == class_name)
        for paragraph in (ast.get_docstring(found) or "").split("\n\n"):
            is_formula = paragraph.startswith("    ")
            yield f"```text\n{inspect.cleandoc(paragraph)}\n```\n" if is_formula else f"{paragraph}\n"


def sub_commands(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield a section with the help of each sub-command of `parser`, without the commands below it (`nnlo task`)."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                # The same lines on each terminal.
                command.formatter_class = partial(argparse.RawDescriptionHelpFormatter, width=HELP_WIDTH)
                yield f"## `{command.prog}`\n\n```text\n{SAID_ABOVE.sub('', command.format_help())}```\n"


def keys_by_effect() -> Iterator[str]:
    """Yield a table of the keys with each effect of an edit."""
    yield from ("## Keys", "", table_row("effect", "keys and sections"), table_row("---", "---"))
    for effect in EditEffect:
        yield table_row(effect.value, ", ".join(f"`{key}`" for key in keys_with(Experiment, effect)))


def table_row(*cells: str) -> str:
    """Return a row of a table in Markdown."""
    return f"| {' | '.join(cells)} |"
