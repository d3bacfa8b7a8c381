"""The features of the five older systems: their table, with the test or the reason of each, and its page.

`python docs/seeds_page.py` writes the page.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from os.path import relpath
from pathlib import Path
from typing import Self

import yaml
from pydantic import ConfigDict, TypeAdapter, model_validator
from pydantic.dataclasses import dataclass

from nnlo_lib.config.docgen.pages import table_row

ROOT = Path(__file__).parents[1]
SEED_TABLE_FILE = "docs/reference/seed_rows.yaml"
SEEDS_PAGE_FILE = "docs/reference/seeds.md"
SEEDS_MARKER = f"<!-- From here on written by `make docs` from {SEED_TABLE_FILE}: edit there. -->\n"
PAGE_FOLDER = "docs/reference"


class RowState(StrEnum):
    """State of a feature in NNLO."""

    DONE = "done"
    NOT = "not"
    OPEN = "open"


STATE_WORDS = {RowState.DONE: "yes", RowState.NOT: "no", RowState.OPEN: "open"}


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class SeedRow:
    """One feature of an older system.

    Attributes:
        row: number of the feature, unique over all systems.
        feature: the feature in a few words.
        state: state in NNLO.
        where: tests (a file below tests/, `::`, a function) and commands (`nnlo ...`, `make ...`) that show a done feature.
        why: sentence that gives the reason of a feature that is not done.
        page: page, or page and heading, that says more about this reason.
        by: names of those who decide about an open row.
    """

    row: int
    feature: str
    state: RowState
    where: tuple[str, ...] = ()
    why: str = ""
    page: str = ""
    by: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _has_the_keys_of_its_state(self) -> Self:
        needed = {RowState.DONE: "where", RowState.NOT: "why", RowState.OPEN: "by"}[self.state]
        allowed = {needed, "page"} if self.state is RowState.NOT else {needed}
        given = {key for key in ("where", "why", "page", "by") if getattr(self, key)}
        if needed not in given or not given <= allowed:
            raise ValueError(
                f"row {self.row}: state `{self.state}` requires `{needed}` (found: {', '.join(sorted(given)) or 'no key'}); "
                f"write `{needed}` and remove other keys"
            )
        return self

    @property
    def tests(self) -> list[str]:
        """Tests in `where`."""
        return [each for each in self.where if "::" in each]

    @property
    def commands(self) -> list[str]:
        """Commands in `where`."""
        return [each for each in self.where if "::" not in each]


def load_seed_table(root: Path) -> dict[str, list[SeedRow]]:
    """Return the rows by system, from the table in the checkout `root`."""
    text = (root / SEED_TABLE_FILE).read_text(encoding="utf-8")
    return TypeAdapter(dict[str, list[SeedRow]]).validate_python(yaml.safe_load(text))


def seeds_page(current: str, table: Mapping[str, Sequence[SeedRow]]) -> str:
    """Return the page: the introduction of `current`, the counts, and the features of each system."""
    introduction = current.partition(SEEDS_MARKER)[0]
    return "\n".join([introduction + SEEDS_MARKER, *_counts(table), "", *_seed_sections(table)])


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


def _seed_sections(table: Mapping[str, Sequence[SeedRow]]) -> Iterator[str]:
    for name, rows in table.items():
        yield from (f"## {name}", "", _line("row", "feature", "here", "tests, commands or reason"))
        yield "| ---: | --- | --- | --- |"
        yield from (_line(str(row.row), row.feature, STATE_WORDS[row.state], _evidence(row)) for row in rows)
        yield ""


def _evidence(row: SeedRow) -> str:
    if row.state is RowState.OPEN:
        return ""
    if row.state is RowState.DONE:
        tests = [
            f"[`{name}`]({_link(file)})" for file, _, name in (each.partition("::") for each in row.tests)
        ]
        return ", ".join([*tests, *(f"`{each}`" for each in row.commands)])
    return f"{row.why} See [{row.page.rpartition('/')[2]}]({_link(row.page)})." if row.page else row.why


def _link(path: str) -> str:
    return relpath(path, PAGE_FOLDER)


def _line(*cells: str) -> str:
    return table_row(*(cell.replace("|", "\\|") for cell in cells))


if __name__ == "__main__":
    page = ROOT / SEEDS_PAGE_FILE
    page.write_text(seeds_page(page.read_text(encoding="utf-8"), load_seed_table(ROOT)), encoding="utf-8")
