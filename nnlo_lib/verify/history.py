"""Whether the history is whole, and is what was published."""

import csv
from collections.abc import Iterator, Sequence

from nnlo_lib.verify.epochs import EpochsError, Row, rows_of
from nnlo_lib.verify.finding import Finding, failed, ok
from nnlo_lib.verify.finished import Finished


def history(run: Finished) -> Iterator[Finding]:
    """See that the history has each epoch once, in order, and that history.csv says the same."""
    try:
        rows = rows_of(run, "history")
        published = list(csv.reader((run.folder / "history.csv").read_text().splitlines()))
    except (EpochsError, OSError, UnicodeDecodeError) as error:
        yield failed(f"history: {error}")
        return
    if published != _as_csv(rows):
        yield failed("history: history.csv does not agree with state/history.jsonl")
    else:
        yield ok(f"history: each of {run.epochs} epochs is there once, in order, and history.csv agrees")


def _as_csv(rows: Sequence[Row]) -> list[list[str]]:
    values = [["" if value is None else str(value) for value in row.values()] for row in rows]
    return [list(rows[0]), *values]
