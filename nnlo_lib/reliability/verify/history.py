"""Check that the history has each epoch once, and that the tables agree with the published files."""

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path

from nnlo_lib.reliability.verify.epoch_table import EpochRow, EpochTableError, read_epoch_table
from nnlo_lib.reliability.verify.finding import Finding, failed, ok
from nnlo_lib.state.finished_run import FinishedRun
from nnlo_lib.state.jsonl_table import read_rows


def check_history(run: FinishedRun) -> Iterator[Finding]:
    """Check that the history has each epoch once and in order, and that the published tables agree with state/."""
    try:
        rows = read_epoch_table(run.paths.state.history, run.epochs)
        published = _read_csv(run.paths.history)
    except (EpochTableError, OSError, UnicodeDecodeError) as error:
        yield failed(f"history: {error}")
        return
    if published != _as_csv(rows):
        yield failed("history: history.csv does not agree with state/history.jsonl")
    else:
        yield ok(f"history: each of {run.epochs} epochs is present once and in order; history.csv agrees")
    state = run.paths.state
    for table, path in ((state.nodes, run.paths.nodes), (state.validations, run.paths.validations)):
        if path.exists():
            yield from _check_table(table, path)


def _check_table(table: Path, path: Path) -> Iterator[Finding]:
    try:
        agrees = _read_csv(path) == _as_csv(read_rows(table))
    except (OSError, ValueError, IndexError) as error:
        yield failed(f"history: {table} is damaged ({error})")
        return
    if not agrees:
        yield failed(f"history: {path.name} does not agree with state/{table.name}")


def _read_csv(path: Path) -> list[list[str]]:
    return list(csv.reader(path.read_text().splitlines()))


def _as_csv(rows: Sequence[EpochRow]) -> list[list[str]]:
    # csv writes None as an empty string and other values with str().
    # A restart may have added a column.
    names = list(dict.fromkeys(name for row in rows for name in row))
    values = [["" if row.get(name) is None else str(row[name]) for name in names] for row in rows]
    return [names, *values]
