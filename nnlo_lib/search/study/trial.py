"""The files of a search, which are all of its state: one for each trial, one for each piece of training that ended.

trials/0007.json                    what was asked for, when it was decided, and what was not known then
trials/0007/fold-0/                 run folder of a fold
trials/0007/fold-0/epochs-9.json    what came of training it up to epoch 9
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from nnlo_lib.config.paths import SearchPaths
from nnlo_lib.core.atomic_file import atomic_write
from nnlo_lib.core.errors import UserError

SearchPoint = dict[str, Any]  # value of each key that matters, by its path
Status = Literal["finished", "failed", "unwanted"]  # unwanted: a constraint refused it


@dataclass(frozen=True, order=True)
class FoldTask:
    """One piece of work: train a fold of a trial until so many epochs are done."""

    trial: int
    fold: int
    epochs: int

    def result_path(self, search: Path) -> Path:
        """Return the file of its result."""
        return SearchPaths(search).result(self.trial, self.fold, self.epochs)

    def run_folder(self, search: Path) -> Path:
        """Return the run folder of the fold."""
        return SearchPaths(search).fold(self.trial, self.fold).folder


@dataclass(frozen=True)
class SchedulingDecision:
    """That a leaf is to be trained. number: counts the decisions of a search; pending: those without a result then."""

    number: int
    task: FoldTask
    pending: tuple[int, ...]


@dataclass(frozen=True)
class Trial:
    """A candidate and the decisions on it, the first of which made it."""

    number: int
    point: SearchPoint
    decisions: tuple[SchedulingDecision, ...] = ()

    @cached_property
    def rungs(self) -> dict[int, list[FoldTask]]:
        """Leaves decided on, in the order of folds, by their number of epochs, which rises."""
        leaves = sorted((d.task for d in self.decisions), key=lambda leaf: (leaf.epochs, leaf.fold))
        return {epochs: list(group) for epochs, group in groupby(leaves, lambda leaf: leaf.epochs)}


@dataclass(frozen=True)
class Result:
    """What came of a leaf. rows: of the history, from epoch 1; cores, gpus: used.

    started, ended: of the attempt that ended it, seconds since 1970; interrupted: seconds of attempts before.
    """

    leaf: FoldTask
    status: Status
    rows: tuple[dict[str, float], ...] = ()
    error: str = ""
    started: float = 0.0
    ended: float = 0.0
    cores: int = 1
    gpus: int = 0
    interrupted: float = 0.0

    @property
    def seconds(self) -> float:
        """Wall time of this leaf, in all attempts."""
        return self.interrupted + self.ended - self.started

    def write(self, search: Path) -> None:
        """Publish, in one move."""
        _write(self.leaf.result_path(search), asdict(self))


def write_trial(search: Path, trial: Trial) -> None:
    """Write a trial's file, in one move."""
    decisions = [
        {"decision": d.number, "fold": d.task.fold, "epochs": d.task.epochs, "pending": list(d.pending)}
        for d in trial.decisions
    ]
    values = {"trial": trial.number, "point": trial.point, "decisions": decisions}
    _write(SearchPaths(search).trial(trial.number), values)


def read_trials(search: Path) -> list[Trial]:
    """Return all trials by number. Raises UserError naming a file that is damaged or missing."""
    files = [path for path in SearchPaths(search).trials.glob("*.json") if path.stem.isdigit()]
    trials = [read_trial(search, number) for number in range(len(files))]
    for number, decision in enumerate(decisions_in_order(trials)):
        if decision.number != number or not set(decision.pending) <= set(range(number)):
            what = f"decision {decision.number}, where {number} is due, awaits {decision.pending}"
            raise _damaged(search, decision.task.trial, what)
    return trials


def read_trial(search: Path, number: int) -> Trial:
    """Return one trial. Raises UserError if its file is damaged or missing."""
    try:
        values = json.loads(SearchPaths(search).trial(number).read_text())
        decisions = tuple(
            SchedulingDecision(
                int(each["decision"]), FoldTask(number, each["fold"], each["epochs"]), tuple(each["pending"])
            )
            for each in values["decisions"]
        )
        trial = Trial(values["trial"], dict(values["point"]), decisions)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _damaged(search, number, f"{type(error).__name__}: {error}") from error
    if trial.number != number or not decisions:
        raise _damaged(search, number, f"it holds {len(decisions)} decisions on trial {trial.number}")
    return trial


def read_result(search: Path, leaf: FoldTask) -> Result | None:
    """Return what came of a leaf, if it has ended. Raises UserError if its file is damaged."""
    path = leaf.result_path(search)
    try:
        values = json.loads(path.read_text())
        return Result(**values | {"leaf": leaf, "rows": tuple(values["rows"])})
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        what = f"{path} is damaged ({type(error).__name__}: {error})"
        raise UserError(f"{what}; delete it, and this piece is trained again from its checkpoint") from error


def decisions_in_order(trials: Iterable[Trial]) -> list[SchedulingDecision]:
    """Return all decisions on trials by number."""
    return sorted((d for trial in trials for d in trial.decisions), key=lambda decision: decision.number)


def _damaged(search: Path, number: int, what: str) -> UserError:
    return UserError(
        f"{SearchPaths(search).trial(number)} is damaged ({what}); restore it, or delete {search} to begin again"
    )


def _write(path: Path, values: dict[str, Any]) -> None:
    with atomic_write(path) as part:
        part.write_text(json.dumps(values, indent=1) + "\n")
