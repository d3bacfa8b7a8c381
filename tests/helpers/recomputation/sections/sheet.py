"""Recomputation of a table with a row per run."""

from collections.abc import Callable

from helpers.recomputation.audit import Audit
from helpers.recomputation.raw import Job, Trainings


def check_sheet(
    audit: Audit, section: str, raw: Trainings, value: Callable[[str, list[Job]], object]
) -> None:
    """Compare the cells of the sheet in a section.

    Args:
        audit: the page.
        section: id of the section; a page without it is accepted.
        raw: the trainings.
        value: returns the value of a cell from its heading and the trainings of its run.
    """
    place = audit.page.section(section)
    if place is None:
        return
    table = place.first("table", "sheet")
    headings = [each.text for each in table.first("thead").all("th")][1:]
    for row in table.first("tbody").all("tr"):
        for heading, cell in zip(headings, row.all("td"), strict=True):
            found = value(heading, raw.runs[row.first("th").text])
            audit.same(
                cell, *(found if isinstance(found, tuple) and isinstance(found[0], str) else ("{}", found))
            )
