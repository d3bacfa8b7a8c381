"""File names of a run: their values on disk, and their absence from all other modules."""

import ast
from pathlib import Path

import pytest

import nnlo_lib
from nnlo_lib.config import JobSpec
from nnlo_lib.config.paths import (
    ExperimentPaths,
    PathBelow,
    RunPaths,
    SearchPaths,
    SearchStatePaths,
    StatePaths,
)

PACKAGE = Path(nnlo_lib.__file__).parent
OWNER = PACKAGE / "config/paths.py"
CLASSES = (RunPaths, StatePaths, SearchPaths, SearchStatePaths)
NAMES = {each.name for kind in CLASSES for each in vars(kind).values() if isinstance(each, PathBelow)}
FOLDERS = {"results", "state", "search"}
PATH_CALLS = {"Path", "glob", "rglob", "joinpath", "with_name"}


def literals(tree):
    """Yield (line, text, True if it is part of a path) of string literals.

    A literal is part of a path if it is an operand of `/` or an argument of a path's method.
    """
    documented = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    helps = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.keyword) and node.arg == "help"
    }
    in_paths = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            in_paths |= {id(part) for side in (node.left, node.right) for part in ast.walk(side)}
        if isinstance(node, ast.Call):
            called = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            if called in PATH_CALLS:
                in_paths |= {id(part) for argument in node.args for part in ast.walk(argument)}
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in documented | helps
        ):
            yield node.lineno, node.value, id(node) in in_paths


def spelled_names(text, is_path):
    """Return the names of a run's files in a literal; a literal with a space or `<` is a message and has none."""
    if " " in text or "<" in text:
        return set()
    parts = set(text.split("/")) - {""}
    known = NAMES | FOLDERS if is_path or "/" in text else {name for name in NAMES if "." in name}
    return parts & known


def test_no_other_module_spells_a_name():
    found = [
        f"{path.relative_to(PACKAGE)}:{line}: {text!r}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if path != OWNER
        for line, text, is_path in literals(ast.parse(path.read_text()))
        if spelled_names(text, is_path)
    ]
    assert not found, f"ask nnlo_lib.config.paths: {found}"


@pytest.mark.parametrize(
    "line",
    [
        'folder / "history.csv"',
        'state / "step"',
        'f"{folder}/state/log.txt"',
        'path.glob("checkpoints/*/x")',
        'NAME = "lease.json"',
        'Path("results", name)',
    ],
)
def test_the_scan_finds_spelled_names(line):
    found = literals(ast.parse(line))
    assert any(spelled_names(text, is_path) for _, text, is_path in found)


@pytest.mark.parametrize("line", ['row["step"]', '"history.csv does not agree"', 'counts["ranks"]'])
def test_the_scan_leaves_keys_and_messages_alone(line):
    assert not any(spelled_names(text, is_path) for _, text, is_path in literals(ast.parse(line)))


def test_names_on_disk():
    experiment = ExperimentPaths("mine")
    job = experiment.job(JobSpec(run="four", seed=1, fold=2))
    assert job.state.history == Path("results/mine/four/seed-1/fold-2/state/history.jsonl")
    assert job.history == Path("results/mine/four/seed-1/fold-2/history.csv")
    assert experiment.run_config("four") == Path("results/mine/four/config.json")
    assert experiment.search.result(7, 0, 9) == Path("results/mine/search/trials/0007/fold-0/epochs-9.json")
    assert experiment.search.trial(7) == Path("results/mine/search/trials/0007.json")
    assert experiment.search.state.pool_failures == Path("results/mine/search/state/deaths.jsonl")


def test_published_outputs_are_in_the_order_of_the_summary():
    names = [path.name for path in RunPaths(Path()).outputs]
    assert names == [
        "model.safetensors", "partition.npz", "history.csv", "nodes.csv", "validations.csv", "samples.png",
        "nnlo_history.json", "trace.json", "log.txt", "monitor.csv", "consensus.npz", "validation_metrics.npz",
    ]  # fmt: skip


def test_archives_are_numbered(tmp_path):
    paths = StatePaths(tmp_path)
    assert paths.next_archive.name == "former-1"
    paths.next_archive.mkdir()
    assert paths.next_archive.name == "former-2"
