"""The functions, packages and layers that docs/concepts/architecture.md names exist."""

import ast
import functools
import re
from configparser import ConfigParser
from pathlib import Path

from helpers.source_tree import PACKAGE, tree

REPOSITORY = Path(__file__).parents[2]
PAGE = (REPOSITORY / "docs/concepts/architecture.md").read_text()
WALKED = re.findall(r"^\|.*\| `nnlo_lib/([\w/]+\.py)` \| `([\w.]+)` \|$", PAGE, re.MULTILINE)


@functools.cache
def _functions(file: str) -> set[str]:
    """Return the functions of a module, and the methods of its classes as Class.method."""
    names = set()
    for node in tree(PACKAGE / file).body:
        if isinstance(node, ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{each.name}" for each in node.body if isinstance(each, ast.FunctionDef)}
    return names


def test_functions_of_the_walks_exist():
    assert len(WALKED) > 50
    assert [(file, name) for file, name in WALKED if name not in _functions(file)] == []


def test_picture_shows_the_layers_in_their_order():
    contracts = ConfigParser()
    contracts.read(REPOSITORY / ".importlinter")
    layers = contracts["importlinter:contract:layers"]["layers"].replace("nnlo_lib.", "").split()
    (picture,) = re.findall(r"```text\n( entry.*?)```", PAGE, re.DOTALL)
    # Remove the headings on the left and the comments on the right.
    lines = "\n".join(line[18:].partition("  ")[0] for line in picture.splitlines())
    assert re.findall(r"\w+", lines.replace(",", " ")) == [name for name in layers if name != "|"]


def test_every_package_has_a_row():
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert packages == set(re.findall(r"^\| \[(\w+)\]\(\.\./\.\./nnlo_lib/\1\)", PAGE, re.MULTILINE))
