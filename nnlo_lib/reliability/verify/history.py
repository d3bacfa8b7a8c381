"""Check of the history for completeness and agreement with the published file."""

import csv
from collections.abc import Iterator, Sequence

from nnlo_lib.reliability.verify.epoch_table import EpochRow, EpochTableError, read_epoch_table
from nnlo_lib.reliability.verify.finding import Finding, failed, ok
from nnlo_lib.state.finished_run import FinishedRun


def check_history(run: FinishedRun) -> Iterator[Finding]:
    """Check that the history has each epoch once and in order, and that history.csv agrees with it."""
    try:
        rows = read_epoch_table(run.paths.state.history, run.epochs)
        published = list(csv.reader(run.paths.history.read_text().splitlines()))
    except (EpochTableError, OSError, UnicodeDecodeError) as error:
        yield failed(f"history: {error}")
        return
    if published != _as_csv(rows):
        yield failed("history: history.csv does not agree with state/history.jsonl")
    else:
        yield ok(f"history: each of {run.epochs} epochs is present once and in order; history.csv agrees")


def _as_csv(rows: Sequence[EpochRow]) -> list[list[str]]:
    # csv writes None as an empty string and other values with str().
    values = [["" if value is None else str(value) for value in row.values()] for row in rows]
    return [list(rows[0]), *values]
