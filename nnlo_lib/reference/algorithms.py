"""The page of algorithms: an introduction written by hand, the validity matrix, and what each class says of itself."""

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

from nnlo_lib.config.validity import MATRIX
from nnlo_lib.reference.page import MARKER

CLASSES = Path(__file__).parents[1] / "algorithms"
HEADINGS = (
    "algorithm", "graph must be", "compression", "batch norm", "groups", "masters", "schedule", "asynchronous", "one model", "elastic", "ranks",
)  # fmt: skip


def algorithms_page(current: str) -> str:
    """Return the page: the introduction of the current one, the matrix, and a section for each algorithm."""
    introduction = current.partition(MARKER)[0]
    sections = (section for name in MATRIX for section in _section(name))
    return "\n".join([introduction + MARKER, "## What goes with what", "", *_matrix(), *sections, ""])


def _matrix() -> Iterator[str]:
    yield f"| {' | '.join(HEADINGS)} |"
    yield "| --- " * len(HEADINGS) + "|"
    for name, row in MATRIX.items():
        cells = (
            f"[`{name}`](#{name})", ", ".join(row.graph) or "-", row.compression, row.buffers, _yes(row.groups),
            _yes(row.masters), _yes(row.schedule), _yes(row.asynchronous), _yes(row.one_model), _yes(row.elastic),
            f"{row.ranks}+",
        )  # fmt: skip
        yield f"| {' | '.join(cells)} |"


def _yes(holds: bool) -> str:
    return "yes" if holds else "no"


def _section(name: str) -> Iterator[str]:
    yield f"\n## `{name}`\n"
    yield f"[nnlo_lib/algorithms/{name}.py](../nnlo_lib/algorithms/{name}.py), [its keys](experiment.md#{name})\n"
    for paragraph in _docstring(name).split("\n\n"):
        if paragraph.startswith("    "):
            yield f"```text\n{inspect.cleandoc(paragraph)}\n```\n"
        else:
            yield f"{paragraph}\n"


def _docstring(name: str) -> str:
    tree = ast.parse((CLASSES / f"{name}.py").read_text(encoding="utf-8"))
    wanted = name.replace("_", "")
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name.lower() == wanted:
            return ast.get_docstring(node) or ""
    raise LookupError(f"{name}.py has no class called like the algorithm")
