"""A table of texts with a row per run, without what is empty."""

from collections.abc import Mapping
from dataclasses import dataclass

from nnlo_lib.report.words import MISSING


@dataclass(frozen=True)
class Sheet:
    """Headings, and the cells of each run in their order."""

    headings: tuple[str, ...]
    rows: dict[str, tuple[str, ...]]


def sheet(cells: Mapping[str, Mapping[str, str]]) -> Sheet:
    """Lay out cells by run and heading; a run or a heading that has none is left out."""
    full = {run: row for run, row in cells.items() if set(row.values()) - {MISSING}}
    named = dict.fromkeys(name for row in full.values() for name, text in row.items() if text != MISSING)
    order = dict.fromkeys(name for row in full.values() for name in row)
    headings = tuple(name for name in order if name in named)
    return Sheet(
        headings, {run: tuple(row.get(name, MISSING) for name in headings) for run, row in full.items()}
    )
