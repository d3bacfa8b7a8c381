"""Reference page of the older systems: a hand-written introduction, counts, and one row for each feature."""

from collections.abc import Iterator, Mapping, Sequence
from os.path import relpath

from nnlo_lib.config.docgen.reference_page import MARKER
from nnlo_lib.config.docgen.seed_table import SEED_TABLE_FILE, RowState, SeedRow

SEEDS_MARKER = MARKER.replace("nnlo_lib/config/", SEED_TABLE_FILE)
PAGE_FOLDER = "docs/reference"
STATE_WORDS = {RowState.DONE: "yes", RowState.NOT: "no", RowState.OPEN: "open"}


def seeds_page(current: str, table: Mapping[str, Sequence[SeedRow]]) -> str:
    """Return the page: the introduction of `current`, the counts, and the features of each system."""
    introduction = current.partition(SEEDS_MARKER)[0]
    return "\n".join([introduction + SEEDS_MARKER, *_counts(table), "", *_sections(table)])


def _counts(table: Mapping[str, Sequence[SeedRow]]) -> Iterator[str]:
    yield from (
        "## Counts",
        "",
        _line("system", "features", *STATE_WORDS.values()),
        "| --- |" + " ---: |" * 4,
    )
    yield from (_count(name, rows) for name, rows in table.items())
    yield _count("all", [row for rows in table.values() for row in rows])


def _count(name: str, rows: Sequence[SeedRow]) -> str:
    states = [row.state for row in rows]
    return _line(name, str(len(rows)), *(str(states.count(state)) for state in STATE_WORDS))


def _sections(table: Mapping[str, Sequence[SeedRow]]) -> Iterator[str]:
    for name, rows in table.items():
        yield from (f"## {name}", "", _line("row", "feature", "here", "tests, commands or reason"))
        yield "| ---: | --- | --- | --- |"
        yield from (_line(str(row.row), row.feature, STATE_WORDS[row.state], _evidence(row)) for row in rows)
        yield ""


def _evidence(row: SeedRow) -> str:
    if row.state is RowState.OPEN:
        return ""
    if row.state is RowState.DONE:
        return ", ".join([*map(_test, row.tests), *(f"`{each}`" for each in row.commands)])
    return f"{row.why} See [{row.page.rpartition('/')[2]}]({_link(row.page)})." if row.page else row.why


def _test(test: str) -> str:
    file, _, name = test.partition("::")
    return f"[`{name}`]({_link(file)})"


def _link(path: str) -> str:
    return relpath(path, PAGE_FOLDER)


def _line(*cells: str) -> str:
    return f"| {' | '.join(map(_escaped, cells))} |"


def _escaped(cell: str) -> str:
    return cell.replace("|", "\\|")
