"""What a person is told when a search has ended."""

from collections.abc import Iterator
from pathlib import Path

from nnlo_lib.report.page import write_search_page
from nnlo_lib.search.record import Record, read_record
from nnlo_lib.search.row import Row
from nnlo_lib.search.supply import supply
from nnlo_lib.search.words import among, measured, settings
from nnlo_lib.tune.best import BEST, TRIALS, best_row, write_outcome

PAGE = "report.html"


def tell_outcome(folder: Path) -> None:
    """Write trials.csv, best.yaml and report.html, and print what is in them. Raises UserError if no trial came to anything."""
    write_outcome(folder)
    write_search_page(folder / PAGE, folder)
    record = read_record(folder)
    print("\n".join(_lines(record, best_row(record))))


def _lines(record: Record, best: Row) -> Iterator[str]:
    yield f"best: trial {best.number} of {len(record.known.trials)}  {measured(record.search.objective, best)}"
    yield from (f"  {words}" for words in [among(record.known)] if words)
    yield from (f"  {line}" for line in settings(best.point))
    rows = record.rows
    counts = {state: sum(row.state == state for row in rows) for state in ("stopped", "failed", "unwanted")}
    others = [f"{count} {state}" for state, count in counts.items() if count]
    hours = sum(row.core_hours for row in rows)
    if len(rows) < record.search.trials and len(rows) == supply(record.search):
        yield f"space:  exhausted by {len(rows)} trials, where search.trials is {record.search.trials}"
    yield f"trials: {len(rows)}{''.join(f', {each}' for each in others)}; {hours:.3g} core hours"
    yield f"table:  {record.folder / TRIALS}"
    yield f"page:   {record.folder / PAGE}"
    yield f"next:   nnlo run {record.folder / BEST}"
