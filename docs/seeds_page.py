"""The features of the five older systems: their table, with the test or the reason of each, and its page.

`python docs/seeds_page.py` writes the page.
"""

from collections.abc import Iterator, Mapping, Sequence
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


STATES = ("yes", "no", "open")


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))
class SeedRow:
    """One feature of an older system: here, not here for a reason, or open.

    Attributes:
        feature: the feature in a few words.
        where: tests (a file below tests/, `::`, a function) and commands (`nnlo ...`, `make ...`) that show the feature.
        why: sentence that gives the reason of a feature that is not here.
        page: page, or page and heading, that says more about this reason.
        by: names of those who decide about an open row.
    """

    feature: str
    where: tuple[str, ...] = ()
    why: str = ""
    page: str = ""
    by: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _has_one_state(self) -> Self:
        if sum(map(bool, (self.where, self.why, self.by))) != 1 or (self.page and not self.why):
            raise ValueError(
                f"`{self.feature}` requires one of `where`, `why` (with `page`, if any) and `by`"
            )
        return self

    @property
    def state(self) -> str:
        """Whether the feature is here."""
        return "yes" if self.where else "no" if self.why else "open"

    @property
    def tests(self) -> list[str]:
        """Tests in `where`."""
        return [each for each in self.where if "::" in each]

    @property
    def commands(self) -> list[str]:
        """Commands in `where`."""
        return [each for each in self.where if "::" not in each]


SeedTable = Mapping[str, Mapping[int, SeedRow]]  # rows by their number, unique over all systems, by system


def load_seed_table(root: Path) -> SeedTable:
    """Return the table of the checkout `root`."""
    text = (root / SEED_TABLE_FILE).read_text(encoding="utf-8")
    return TypeAdapter(dict[str, dict[int, SeedRow]]).validate_python(yaml.safe_load(text))


def seeds_page(current: str, table: SeedTable) -> str:
    """Return the page: the introduction of `current`, the counts, and the features of each system."""
    introduction = current.partition(SEEDS_MARKER)[0]
    return "\n".join([introduction + SEEDS_MARKER, *_counts(table), "", *_seed_sections(table)])


def _counts(table: SeedTable) -> Iterator[str]:
    yield from ("## Counts", "", _line("system", "features", *STATES), "| --- |" + " ---: |" * 4)
    yield from (_count(name, [*rows.values()]) for name, rows in table.items())
    yield _count("all", [row for rows in table.values() for row in rows.values()])


def _count(name: str, rows: Sequence[SeedRow]) -> str:
    states = [row.state for row in rows]
    return _line(name, str(len(rows)), *(str(states.count(state)) for state in STATES))


def _seed_sections(table: SeedTable) -> Iterator[str]:
    for name, rows in table.items():
        yield from (f"## {name}", "", _line("feature", "shown by, or why not"), "| --- | --- |")
        yield from (_line(row.feature, _evidence(row)) for row in rows.values())
        yield ""


def _evidence(row: SeedRow) -> str:
    if row.where:
        tests = [
            f"[`{name}`]({_link(file)})" for file, _, name in (each.partition("::") for each in row.tests)
        ]
        return ", ".join([*tests, *(f"`{each}`" for each in row.commands)])
    more = f" See [{row.page.rpartition('/')[2]}]({_link(row.page)})." if row.page else ""
    return f"**no**: {row.why}{more}" if row.why else "**open**"


def _link(path: str) -> str:
    return relpath(path, PAGE_FOLDER)


def _line(*cells: str) -> str:
    return table_row(*(cell.replace("|", "\\|") for cell in cells))


if __name__ == "__main__":
    page = ROOT / SEEDS_PAGE_FILE
    page.write_text(seeds_page(page.read_text(encoding="utf-8"), load_seed_table(ROOT)), encoding="utf-8")
