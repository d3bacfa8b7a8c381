"""How often blocks have died of a piece of work: on disk, for so may whoever counts."""

import json
from collections import Counter
from contextlib import suppress
from pathlib import Path

from nnlo_lib.errors import UserError
from nnlo_lib.search.trial import Leaf

NAME = "deaths.jsonl"  # in the search's state/, a line for each block that died in training


class NoBlockError(UserError):
    """There is work, and no block left to do it."""


class Deaths:
    """Of all allocations of a search. folder: its."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "state" / NAME
        self._count = Counter(_read(self._path))

    def __getitem__(self, leaf: Leaf) -> int:
        """Return how many blocks have died of a leaf."""
        return self._count[leaf]

    @property
    def all(self) -> int:
        """The number of all."""
        return self._count.total()

    def add(self, leaf: Leaf, why: str) -> None:
        """Count one more; where the disk refuses, only here."""
        self._count[leaf] += 1
        row = {"trial": leaf.trial, "fold": leaf.fold, "epochs": leaf.epochs, "why": why}
        with suppress(OSError), self._path.open("a") as file:
            file.write(json.dumps(row) + "\n")


def _read(path: Path) -> list[Leaf]:
    """Return the leaves, less a line that a crash cut short."""
    leaves = []
    for line in path.read_text().splitlines() if path.exists() else []:
        with suppress(ValueError, KeyError):
            row = json.loads(line)
            leaves.append(Leaf(row["trial"], row["fold"], row["epochs"]))
    return leaves
