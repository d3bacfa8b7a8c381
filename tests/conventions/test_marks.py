"""Check the marks of the tests, which assign them to lanes, and that tests wait for conditions, not for seconds.

helpers/lanes.py counts the tests that are marked `real`.
"""

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path

from helpers.source_tree import REPOSITORY, tree

TESTS = REPOSITORY / "tests"
FILES = sorted(TESTS.rglob("*.py"))
LANES = {"real", "exhaustive", "long"}
NEEDS = {"slurm", "browser", "snakemake", "mpi", "processes"}
OF_PYTEST = {"timeout", "parametrize", "usefixtures", "filterwarnings", "skipif", "skip"}
# Waits for seconds, by file, with their reasons.
SLEEPS = {
    "train/test_observers.py": "the CPU time of an idle process is measured",
}


def _name(path: Path) -> str:
    return str(path.relative_to(TESTS))


def _is_mark(node: ast.AST, name: str = "") -> bool:
    """Return True if a node is `pytest.mark.<name>`, or any mark without a name."""
    is_mark = isinstance(node, ast.Attribute) and ast.unparse(node.value) == "pytest.mark"
    return is_mark and name in ("", node.attr)


def test_only_known_marks():
    unknown = [
        f"{_name(path)}:{node.lineno}: {node.attr}"
        for path in FILES
        for node in ast.walk(tree(path))
        if _is_mark(node) and node.attr not in LANES | NEEDS | OF_PYTEST
    ]
    assert unknown == []


def test_every_mark_long_has_a_reason():
    with_reason, marks = set(), {}
    for path in FILES:
        for node in ast.walk(tree(path)):
            if _is_mark(node, "long"):
                marks[id(node)] = f"{_name(path)}:{node.lineno}"
            if isinstance(node, ast.Call) and _is_mark(node.func, "long") and len(node.args) == 1:
                reason = node.args[0]
                if isinstance(reason, ast.Constant) and len(str(reason.value).split()) > 2:
                    with_reason.add(id(node.func))
    assert [place for key, place in marks.items() if key not in with_reason] == []


def _sleeps(node: ast.AST, in_loop: bool = False) -> Iterator[int]:
    """Yield the lines of `time.sleep` outside of loops `while`, which poll a condition."""
    if isinstance(node, ast.Call) and ast.unparse(node.func) in ("time.sleep", "sleep") and not in_loop:
        yield node.lineno
    for child in ast.iter_child_nodes(node):
        yield from _sleeps(child, in_loop or isinstance(node, ast.While))


def test_tests_wait_for_conditions():
    """Programs of ranks are texts, and stand-ins for other programs are not tests."""
    found = {
        f"{_name(path)}:{line}"
        for path in FILES
        if "stand_in" not in _name(path) and _name(path) not in SLEEPS
        for line in _sleeps(tree(path))
    }
    assert sorted(found) == []
    assert len(SLEEPS) <= 5
    assert all(list(_sleeps(tree(TESTS / name))) for name in SLEEPS), "remove an exception that is none"


def test_each_planted_defect_applies():
    """A patch that no longer applies is found by `make planted-defects` only, which no lane runs."""
    patches = sorted((REPOSITORY / "tests/planted_defects").glob("*.patch"))
    stale = [
        patch.stem
        for patch in patches
        if subprocess.run(
            ["git", "apply", "--check", patch], cwd=REPOSITORY, capture_output=True, check=False
        ).returncode
    ]
    assert patches
    assert stale == [], "write the patch anew, with the same mistake"
