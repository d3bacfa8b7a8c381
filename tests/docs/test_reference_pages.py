"""The reference tables of files, exit statuses and time-outs agree with the code."""

import ast
import re
from pathlib import Path
from typing import get_args

import pytest
from helpers.source_tree import MODULES, PACKAGE, tree

from nnlo_lib.config import paths
from nnlo_lib.config.docgen.schema import EXPERIMENT_SCHEMA, fields, member_blocks
from nnlo_lib.core.errors import EXIT_BROKEN_PIPE, EXIT_PARTIAL_IMPORT, EXIT_USER_ERROR, ExitReason
from nnlo_lib.state.attempt_outcome import EXIT_PREEMPTED, AttemptOutcome

REFERENCE = Path(__file__).parents[2] / "docs/reference"
TIME = re.compile(r"_(S|MS|MIN|SECONDS|TIMEOUT|INTERVAL)$")
PATH_CLASSES = [paths.StatePaths, paths.RunPaths, paths.SearchStatePaths, paths.SearchPaths]


def _page(name: str) -> str:
    return (REFERENCE / name).read_text()


@pytest.mark.parametrize("kind", PATH_CLASSES, ids=lambda kind: kind.__name__)
def test_files_page_has_every_name(kind):
    page = _page("files.md")
    names = [each.name for each in vars(kind).values() if isinstance(each, paths.PathBelow)]
    assert names
    assert [name for name in names if not re.search(rf"[`/]{re.escape(name)}[`/]", page)] == []


def test_every_reason_has_a_row_with_its_status():
    rows = re.findall(r"^\| `([a-z ]+)` \| .* \| (\d+) \| .* \|$", _page("exit_statuses.md"), re.MULTILINE)
    assert {reason for reason, _ in rows} == set(get_args(ExitReason))
    blamed = {"diverged", "bad input", "user code"}
    statuses = {reason: AttemptOutcome(reason, "", "", reason in blamed).exit_status for reason, _ in rows}
    assert statuses == {reason: int(status) for reason, status in rows}


def test_statuses_of_commands():
    page = _page("exit_statuses.md").partition("## Reasons")[0]
    rows = re.findall(r"^\| (\d+) \|", page, re.MULTILINE)
    ends = [0, 1, EXIT_USER_ERROR, EXIT_PARTIAL_IMPORT, EXIT_PREEMPTED, EXIT_BROKEN_PIPE]
    assert [int(row) for row in rows] == ends


def _constants() -> dict[tuple[str, str], object]:
    """Return the value of every constant of the code with a name that denotes a time."""
    found = {}
    for path in MODULES:
        for node in tree(path).body:
            target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
            if isinstance(target, ast.Name) and TIME.search(target.id):
                # The value is a literal or a product.
                value = eval(compile(ast.Expression(node.value), path.name, "eval"), {})
                found[target.id, str(path.relative_to(PACKAGE.parent))] = value
    return found


def test_every_time_has_a_row_with_its_value():
    """Every time constant has a row in docs/reference/timeouts.md; if this test fails, edit or add the row."""
    rows = re.findall(
        r"^\| \[`([A-Z_]+)`\]\(../../([\w/.]+)\) \| (.*?) \|", _page("timeouts.md"), re.MULTILINE
    )
    assert {(name, file): ast.literal_eval(value) for name, file, value in rows} == _constants()


def test_keys_with_a_time_have_a_row():
    """Every configuration key with a time in its description is on the page, except for the simulated machine."""
    page, named = _page("timeouts.md"), set()
    for block, name in _blocks():
        for key, field in fields(block).items():
            if re.search(r"^Seconds|^Time limit|[Hh]ours since|train longer", field.get("description", "")):
                named.add(f"{name}.{key}")
    assert len(named) >= 4
    assert [key for key in named if f"`{key}`" not in page] == []


def _blocks(block=EXPERIMENT_SCHEMA, name=""):
    for key, field in fields(block).items():
        for member in member_blocks(field):
            inner = f"{name}.{key}".strip(".")
            if inner not in ("parallel.simulation", "runs"):
                yield member, inner
                yield from _blocks(member, inner)


def test_glossary_is_sorted_and_names_existing_keys():
    page = (REFERENCE.parent / "concepts/glossary.md").read_text()
    rows = re.findall(r"^\| ([^|]+) \| [^|]+ \| (.*) \|$", page, re.MULTILINE)[1:]
    terms = [term for term, _ in rows if not term.startswith("---")]
    assert terms == sorted(terms)
    assert len(terms) > 45
    keys = {*fields(EXPERIMENT_SCHEMA), *(name for _, name in _blocks())}
    keys |= {f"{name}.{key}" for block, name in _blocks() for key in fields(block)}
    pattern = re.compile(r"(?:^|, )`([a-z_]+(?:\.[a-z_]+)*)(?::[^`]*)?`")
    named = [key for _, cell in rows for key in pattern.findall(cell)]
    assert len(named) > 25
    assert [key for key in named if key not in keys] == []
