"""Number of rank groups lost per fold task; kept on disk, because the coordinator may be lost, too."""

import json
from collections import Counter
from contextlib import suppress
from pathlib import Path

from nnlo_lib.config.paths import SearchPaths
from nnlo_lib.core.errors import UserError
from nnlo_lib.search.study.trial import FoldTask


class NoGroupLeftError(UserError):
    """Fold tasks are left, but all rank groups are lost."""


class FailureLog:
    """Lost rank groups in all allocations of a search; `folder` is the folder of the search."""

    def __init__(self, folder: Path) -> None:
        self._path = SearchPaths(folder).state.pool_failures
        self._count = Counter(_read(self._path))

    def __getitem__(self, fold_task: FoldTask) -> int:
        """Return the number of rank groups that were lost while they trained a fold task."""
        return self._count[fold_task]

    @property
    def total(self) -> int:
        """Number of lost rank groups over all fold tasks."""
        return self._count.total()

    def add(self, fold_task: FoldTask, why: str) -> None:
        """Count one more lost rank group; if the file cannot be written, count it in memory only."""
        self._count[fold_task] += 1
        row = {"trial": fold_task.trial, "fold": fold_task.fold, "epochs": fold_task.epochs, "why": why}
        with suppress(OSError), self._path.open("a") as file:
            file.write(json.dumps(row) + "\n")


def _read(path: Path) -> list[FoldTask]:
    """Return the recorded fold tasks; skip a line that a crash cut short."""
    fold_tasks = []
    for line in path.read_text().splitlines() if path.exists() else []:
        with suppress(ValueError, KeyError):
            row = json.loads(line)
            fold_tasks.append(FoldTask(row["trial"], row["fold"], row["epochs"]))
    return fold_tasks
