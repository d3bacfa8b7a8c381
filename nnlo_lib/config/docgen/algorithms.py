"""Page of the algorithms: a hand-written introduction, the matrix of capabilities, and the class docstrings."""

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

from nnlo_lib.config.algorithm import ALGORITHM_CONFIGS, ALGORITHMS
from nnlo_lib.config.docgen.reference_page import MARKER

NNLO_LIB = Path(__file__).parents[2]
HEADINGS = (
    "algorithm", "graph must be", "compression", "batch norm", "groups", "masters", "schedule", "asynchronous", "one model", "elastic", "`weight_clip`", "`critic_steps`", "ranks",
)  # fmt: skip


def algorithms_page(current: str) -> str:
    """Return the page: the introduction of `current`, the matrix, and a section for each algorithm."""
    introduction = current.partition(MARKER)[0]
    sections = (section for name in ALGORITHMS for section in _section(name))
    return "\n".join([introduction + MARKER, "## Requirements and features", "", *_matrix(), *sections, ""])


def _matrix() -> Iterator[str]:
    yield f"| {' | '.join(HEADINGS)} |"
    yield "| --- " * len(HEADINGS) + "|"
    for name, row in ALGORITHMS.items():
        cells = (
            f"[`{name}`](#{name})", ", ".join(row.graph_properties) or "-", row.compression, row.batch_norm_buffers, _yes(row.supports_worker_groups),
            _yes(row.supports_server_tree), _yes(row.supports_schedule), _yes(row.asynchronous), _yes(row.one_model), _yes(row.elastic),
            row.keeps_weight_clip, row.keeps_critic_steps, f"{row.min_ranks}+",
        )  # fmt: skip
        yield f"| {' | '.join(cells)} |"


def _yes(holds: bool) -> str:
    return "yes" if holds else "no"


def _section(name: str) -> Iterator[str]:
    yield f"\n## `{name}`\n"
    module, _, class_name = ALGORITHM_CONFIGS[name].implementation.partition(":")
    source = _file(module)
    path = source.relative_to(NNLO_LIB.parent)
    yield f"[{path}](../../{path}), [its keys](experiment.md#{name})\n"
    for paragraph in _docstring(source, class_name).split("\n\n"):
        if paragraph.startswith("    "):
            yield f"```text\n{inspect.cleandoc(paragraph)}\n```\n"
        else:
            yield f"{paragraph}\n"


def _file(module: str) -> Path:
    return NNLO_LIB.parent.joinpath(*module.split(".")).with_suffix(".py")


def _docstring(path: Path, class_name: str) -> str:
    # Parsed instead of imported, because the implementations import torch.
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == class_name)
    return ast.get_docstring(found) or ""
