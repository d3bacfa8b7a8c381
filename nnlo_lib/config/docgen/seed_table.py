"""Table of the features of the five older systems, with the test or the reason of each."""

from enum import StrEnum
from pathlib import Path
from typing import Self

import yaml
from pydantic import ConfigDict, TypeAdapter, model_validator
from pydantic.dataclasses import dataclass

SEED_TABLE_FILE = "docs/reference/seed_rows.yaml"


class RowState(StrEnum):
    """State of a feature in NNLO."""

    DONE = "done"
    NOT = "not"
    OPEN = "open"


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
