"""Output of a finished search: its files, and the best trial as text."""

from collections.abc import Iterator
from pathlib import Path

from nnlo_lib.config.paths import SearchPaths
from nnlo_lib.report.page import write_search_page
from nnlo_lib.search.results.best import best_trial_summary, write_outcome
from nnlo_lib.search.space.search_warnings import unfinished_grid
from nnlo_lib.search.space.space import count_distinct_points
from nnlo_lib.search.study.budget import reason_to_end
from nnlo_lib.search.study.plain_text import format_objective, format_point_lines, format_selection
from nnlo_lib.search.study.storage import StoredStudy, load_study
from nnlo_lib.search.study.trial_summary import TrialSummary


def report_outcome(folder: Path) -> None:
    """Write trials.csv, best.yaml and report.html, and print a summary.

    Raises UserError if no trial has a result.
    """
    write_outcome(folder)
    write_search_page(SearchPaths(folder).report, folder)
    print_outcome(folder)


def print_outcome(folder: Path) -> None:
    """Print a summary of a search. Raises UserError if no trial has a result."""
    record = load_study(folder)
    print("\n".join(_lines(record, best_trial_summary(record))))


def _lines(record: StoredStudy, best: TrialSummary) -> Iterator[str]:
    yield f"best: trial {best.number} of {len(record.snapshot.trials)}  {format_objective(record.search.objective, best)}"
    yield from (f"  {selection}" for selection in [format_selection(record.snapshot)] if selection)
    yield from (f"  {line}" for line in format_point_lines(best.point))
    rows, paths = record.trial_summaries, SearchPaths(record.folder)
    counts = {state: sum(row.state == state for row in rows) for state in ("stopped", "failed", "unwanted")}
    others = [f"{count} {state}" for state, count in counts.items() if count]
    hours = sum(row.core_hours for row in rows)
    yield from _unlike_asked(record)
    yield f"trials: {len(rows)}{''.join(f', {each}' for each in others)}; {hours:.3g} core hours"
    yield f"table:  {paths.table}"
    yield f"page:   {paths.report}"
    yield f"next:   nnlo run {paths.best}"


def _unlike_asked(record: StoredStudy) -> Iterator[str]:
    """Yield a line for each reason that ended the search before the limit that the user has set."""
    count, limit = len(record.snapshot.trials), record.search.trial_limit
    if limit is not None and count < limit and count == count_distinct_points(record.search):
        yield f"space:  exhausted after {count} trials (search.trials: {limit})"
    if left := unfinished_grid(record.search, count):
        yield f"grid:   {left}"
    if record.search.trials is None and count == limit and _has_unused_limit(record):
        yield f"ended:  after {limit} trials, the default of search.trials; raise it to use the whole budget"


def _has_unused_limit(record: StoredStudy) -> bool:
    """Return True if the search has a budget or a target that did not end it."""
    limits = [record.search.objective.target, *(limit for _, limit in record.search.budget)]
    return any(limit is not None for limit in limits) and reason_to_end(record.snapshot) is None
