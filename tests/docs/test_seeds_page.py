"""The table of the older systems' features names tests, commands and pages that exist."""

import ast
import functools
import re
import shlex
import sys
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
from pydantic import ValidationError

from nnlo_lib import cli
from nnlo_lib.core.errors import UserError
from nnlo_lib.experiment.load import load_experiment

REPOSITORY = Path(__file__).parents[2]
SPEC = spec_from_file_location("seeds_page", REPOSITORY / "docs/seeds_page.py")
page = module_from_spec(SPEC)
sys.modules["seeds_page"] = page
SPEC.loader.exec_module(page)
SeedRow = page.SeedRow
TABLE = page.load_seed_table(REPOSITORY)
ROWS = [row for rows in TABLE.values() for row in rows.items()]
SENTENCE = re.compile(r"[A-Z`].{20,}\.")
TARGETS = re.findall(r"^([\w-]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)


@functools.cache
def names_of_tests(file: str) -> set[str]:
    """Return the names of the test functions of a file, without its import."""
    path = REPOSITORY / file
    nodes = ast.walk(ast.parse(path.read_text())) if path.is_file() else []
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef)}


def faults(number, row) -> Iterator[str]:
    """Yield the names in a row that do not exist."""
    for test in row.tests:
        file, _, name = test.partition("::")
        if name not in names_of_tests(file):
            yield f"row {number}: no test {test}"
    for command in row.commands:
        if fault := fault_of_command(*shlex.split(command)):
            yield f"row {number}: {command}: {fault}"
    if row.why and not SENTENCE.fullmatch(row.why):
        yield f"row {number}: no sentence: {row.why}"
    if row.page and not (REPOSITORY / row.page.partition("#")[0]).is_file():
        yield f"row {number}: no page {row.page}"


def fault_of_command(program: str, *words: str) -> str:
    """Return the absent target, unknown option, absent file or wrong key of a command; empty if there is none."""
    if program != "nnlo":
        return ", ".join(f"no target {word}" for word in words if program != "make" or word not in TARGETS)
    try:
        options = cli._parser().parse_args(words)
        if file := getattr(options, "file", None):
            load_experiment(str(REPOSITORY / file), options.changes)
    except SystemExit:
        return "wrong usage"
    except UserError as error:
        return str(error)
    return ""


def test_rows_are_numbered_decided_and_name_what_exists():
    assert [number for number, _ in ROWS] == list(range(1, 240))
    assert {name: len(rows) for name, rows in TABLE.items()} == {
        "NNLO": 62, "mpi_learn": 24, "PyDTNN": 67, "Theano-MPI": 38, "DiNNO": 48,
    }  # fmt: skip
    assert [fault for row in ROWS for fault in faults(*row)] == []
    assert [(number, *row.by) for number, row in ROWS if row.by] == []


def test_the_page_is_that_of_the_table():
    current = (REPOSITORY / page.SEEDS_PAGE_FILE).read_text()
    assert page.seeds_page(current, TABLE) == current, "run `make docs`"


@pytest.mark.parametrize(
    "row",
    [
        {},
        {"where": ["make setup"], "why": "A sentence."},
        {"where": ["make setup"], "page": "docs/index.md"},
        {"page": "docs/index.md"},
        {"by": ["both"], "why": "A sentence."},
    ],
)
def test_a_row_has_one_state(row):
    with pytest.raises(ValidationError):
        SeedRow(feature="made up", **row)
