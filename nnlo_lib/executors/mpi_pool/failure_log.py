"""How often blocks have died of a piece of work: on disk, for so may whoever counts."""

import json
from collections import Counter
from contextlib import suppress
from pathlib import Path

from nnlo_lib.config.paths import SearchPaths
from nnlo_lib.core.errors import UserError
from nnlo_lib.search.study.trial import FoldTask


class NoGroupLeftError(UserError):
    """There is work, and no block left to do it."""


class FailureLog:
    """Of all allocations of a search. folder: its."""

    def __init__(self, folder: Path) -> None:
        self._path = SearchPaths(folder).state.pool_failures
        self._count = Counter(_read(self._path))

    def __getitem__(self, leaf: FoldTask) -> int:
        """Return how many blocks have died of a leaf."""
        return self._count[leaf]

    @property
    def total(self) -> int:
        """The number of all."""
        return self._count.total()

    def add(self, leaf: FoldTask, why: str) -> None:
        """Count one more; where the disk refuses, only here."""
        self._count[leaf] += 1
        row = {"trial": leaf.trial, "fold": leaf.fold, "epochs": leaf.epochs, "why": why}
        with suppress(OSError), self._path.open("a") as file:
            file.write(json.dumps(row) + "\n")


def _read(path: Path) -> list[FoldTask]:
    """Return the leaves, less a line that a crash cut short."""
    leaves = []
    for line in path.read_text().splitlines() if path.exists() else []:
        with suppress(ValueError, KeyError):
            row = json.loads(line)
            leaves.append(FoldTask(row["trial"], row["fold"], row["epochs"]))
    return leaves
