"""The table of the older systems' features names tests, commands and pages that exist."""

import ast
import functools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import ValidationError

from nnlo_lib import cli
from nnlo_lib.config.docgen.seed_table import RowState, SeedRow, load_seed_table
from nnlo_lib.core.errors import UserError
from nnlo_lib.experiment.load import load_experiment

REPOSITORY = Path(__file__).parents[2]
TABLE = load_seed_table(REPOSITORY)
ROWS = [row for rows in TABLE.values() for row in rows]
SENTENCE = re.compile(r"[A-Z`].{20,}\.")


@functools.cache
def names_of_tests(file: str) -> set[str]:
    """Return the names of the test functions of a file, without its import."""
    path = REPOSITORY / file
    nodes = ast.walk(ast.parse(path.read_text())) if path.is_file() else []
    return {
        node.name for node in nodes if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def faults(row: SeedRow) -> Iterator[str]:
    """Yield the names in a row that do not exist."""
    for test in row.tests:
        file, _, name = test.partition("::")
        if name not in names_of_tests(file):
            yield f"row {row.row}: no test {test}"
    for command in row.commands:
        yield from (f"row {row.row}: {command}: {fault}" for fault in faults_of_command(command))
    if row.state is RowState.NOT and not SENTENCE.fullmatch(row.why):
        yield f"row {row.row}: no sentence: {row.why}"
    if row.page and not (REPOSITORY / row.page.partition("#")[0]).is_file():
        yield f"row {row.row}: no page {row.page}"


def faults_of_command(command: str) -> Iterator[str]:
    program, *words = shlex.split(command)
    if program == "make":
        targets = re.findall(r"^([\w-]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)
        yield from (f"no target {word}" for word in words if word not in targets)
    elif program == "nnlo":
        yield from faults_of_nnlo(words)
    else:
        yield f"unknown program {program}"


def faults_of_nnlo(words: list[str]) -> Iterator[str]:
    """Yield the unknown options, absent files and wrong keys of an `nnlo` command."""
    try:
        options = cli._parser().parse_args(words)
    except SystemExit:
        yield "wrong usage"
        return
    file = getattr(options, "file", None)
    if file and not (REPOSITORY / file).is_file():
        yield f"no file {file}"
    elif file:
        try:
            load_experiment(str(REPOSITORY / file), options.changes)
        except UserError as error:
            yield str(error)


def test_rows_are_numbered():
    assert [row.row for row in ROWS] == list(range(1, 240))
    assert {name: len(rows) for name, rows in TABLE.items()} == {
        "NNLO": 62, "mpi_learn": 24, "PyDTNN": 67, "Theano-MPI": 38, "DiNNO": 48,
    }  # fmt: skip


def test_rows_name_what_exists():
    assert [fault for row in ROWS for fault in faults(row)] == []


def test_no_row_is_open():
    assert [(row.row, *row.by) for row in ROWS if row.state is RowState.OPEN] == []


@pytest.mark.parametrize(
    ("where", "fault"),
    [
        ("tests/docs/test_seeds_page.py::test_of_nothing", "no test tests/docs/test_seeds_page.py::test_of_nothing"),
        ("tests/docs/test_absent.py::test_rows_are_numbered", "no test tests/docs/test_absent.py"),
        ("make everything", "no target everything"),
        ("nnlo trian config/config.yaml", "wrong usage"),
        ("nnlo check config/absent.yaml", "no file config/absent.yaml"),
        ("nnlo check config/config.yaml --set train.epoch=3", "did you mean 'epochs'?"),
        ("mpirun check", "unknown program mpirun"),
    ],
)  # fmt: skip
def test_a_wrong_name_is_found(where, fault):
    row = SeedRow(row=1, feature="made up", state=RowState.DONE, where=(where,))
    assert fault in "".join(faults(row))


def test_names_that_exist_are_accepted():
    where = (
        "tests/docs/test_seeds_page.py::test_rows_are_numbered",
        "make setup",
        "nnlo check config/config.yaml --set train.epochs=3",
    )
    assert list(faults(SeedRow(row=1, feature="made up", state=RowState.DONE, where=where))) == []


@pytest.mark.parametrize(
    "row",
    [
        {"state": "done"},
        {"state": "done", "where": ["make setup"], "why": "A sentence."},
        {"state": "not"},
        {"state": "not", "page": "docs/index.md"},
        {"state": "open"},
        {"state": "perhaps", "where": ["make setup"]},
    ],
)
def test_each_state_has_its_keys(row):
    with pytest.raises(ValidationError):
        SeedRow(row=1, feature="made up", **row)


def test_an_unfinished_sentence_is_found():
    row = SeedRow(row=1, feature="made up", state=RowState.NOT, why="todo", page="docs/absent.md")
    assert list(faults(row)) == ["row 1: no sentence: todo", "row 1: no page docs/absent.md"]
