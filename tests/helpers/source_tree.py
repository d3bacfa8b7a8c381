"""The modules of nnlo_lib as files: their paths, syntax trees and public classes."""

import ast
import functools
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
PACKAGE = REPOSITORY / "nnlo_lib"
MODULES = sorted(PACKAGE.rglob("*.py"))


def short(path: Path) -> str:
    """Return a path relative to nnlo_lib."""
    return str(path.relative_to(PACKAGE))


@functools.cache
def tree(path: Path) -> ast.Module:
    """Return the syntax tree of a module."""
    return ast.parse(path.read_text())


def classes(path: Path) -> list[ast.ClassDef]:
    """Return the public classes that a module defines at its top level."""
    nodes = tree(path).body
    return [node for node in nodes if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]


def repeated(names: dict[str, list[str]]) -> dict[str, list[str]]:
    """Return the names with more than one place."""
    return {name: places for name, places in names.items() if len(places) > 1}
