"""The files of a search, which contain its complete state: one file per trial, one per ended fold task.

trials/0007.json                    point, numbered decisions, and the decisions that were pending at each
trials/0007/fold-0/                 run folder of a fold
trials/0007/fold-0/epochs-9.json    result of training the fold up to epoch 9
"""

import json
import shutil
from array import array
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, NamedTuple

from nnlo_lib.config.paths import RunPaths, SearchPaths
from nnlo_lib.core.atomic_file import atomic_write, load_json
from nnlo_lib.core.errors import UserError

SearchPoint = dict[str, Any]  # value of each active key, by its path
Status = Literal["finished", "failed", "unwanted"]  # unwanted: violates a constraint of the objective
SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True, order=True)
class FoldTask:
    """The training of one fold of a trial up to a total number of epochs."""

    trial: int
    fold: int
    epochs: int

    def result_path(self, search: Path) -> Path:
        """Return the path of the result file."""
        return SearchPaths(search).result(self.trial, self.fold, self.epochs)

    def run_folder(self, search: Path) -> Path:
        """Return the run folder of the fold."""
        return SearchPaths(search).fold(self.trial, self.fold).folder


@dataclass(frozen=True)
class SchedulingDecision:
    """Decision to train a fold task."""

    number: int  # number of the decision within the search, from 0
    task: FoldTask
    # ascending numbers of the earlier decisions that were treated as decisions without a result
    pending: Collection[int]


class Parent(NamedTuple):
    """The trial with whose weights another one starts, after some epochs; it takes the place of the trial `replaces`."""

    trial: int
    epochs: int
    replaces: int


@dataclass(frozen=True)
class Trial:
    """A point and the decisions on it; the first decision created the trial."""

    number: int
    point: SearchPoint
    decisions: tuple[SchedulingDecision, ...] = ()
    parent: Parent | None = None  # None: the trial starts with initial weights

    @cached_property
    def rungs(self) -> dict[int, list[FoldTask]]:
        """Decided fold tasks in the order of the folds, by number of epochs (ascending)."""
        fold_tasks = sorted(
            (d.task for d in self.decisions), key=lambda fold_task: (fold_task.epochs, fold_task.fold)
        )
        return {
            epochs: list(group) for epochs, group in groupby(fold_tasks, lambda fold_task: fold_task.epochs)
        }


@dataclass(frozen=True)
class Result:
    """Result of a fold task; times in seconds since 1970."""

    fold_task: FoldTask
    status: Status
    rows: tuple[dict[str, float], ...] = ()  # rows of the history, from epoch 1
    error: str = ""  # reason why the task failed or is unwanted
    started: float = 0.0  # start of the training that completed the task (with its retries)
    ended: float = 0.0
    cores: int = 1
    gpus: int = 0
    interrupted: float = 0.0  # seconds of the attempts before `started`
    point: SearchPoint | None = None  # point that was trained; None in results of lost rank groups
    earlier: tuple[tuple[float, float], ...] = ()  # start and end of each of these attempts

    @property
    def spans(self) -> tuple[tuple[float, float], ...]:
        """Start and end of each time in which this fold task was trained."""
        return (*self.earlier, (self.started, self.ended))

    @property
    def seconds(self) -> float:
        """Wall time of this fold task in seconds, over all attempts."""
        return self.interrupted + self.ended - self.started

    def write(self, search: Path) -> None:
        """Write the result file atomically."""
        _write(self.fold_task.result_path(search), asdict(self))


def resource_hours(results: Iterable[Result], resource: Literal["cores", "gpus"]) -> float:
    """Return the number of cores or GPUs times hours of fold tasks that have ended."""
    return sum(float(each.seconds * getattr(each, resource)) for each in results) / SECONDS_PER_HOUR


def write_trial(search: Path, trial: Trial) -> None:
    """Write a trial's file atomically."""
    decisions = [
        {"decision": d.number, "fold": d.task.fold, "epochs": d.task.epochs, "pending": _as_ranges(d.pending)}
        for d in trial.decisions
    ]
    values = {"trial": trial.number, "point": trial.point, "decisions": decisions}
    if trial.parent:
        values["parent"] = trial.parent._asdict()
    _write(SearchPaths(search).trial(trial.number), values)


def read_trials(search: Path) -> list[Trial]:
    """Return all trials by number. Raises UserError naming a file that is damaged or missing."""
    files = [path for path in SearchPaths(search).trials.glob("*.json") if path.stem.isdigit()]
    trials = [read_trial(search, number) for number in range(len(files))]
    for number, decision in enumerate(decisions_in_order(trials)):
        pending = decision.pending
        if decision.number != number or (pending and not 0 <= min(pending) <= max(pending) < number):
            what = f"expected decision {number} with earlier decisions pending, found decision {decision.number} with pending {_as_ranges(pending)}"
            raise _damaged(search, decision.task.trial, what)
    return trials


def read_trial(search: Path, number: int) -> Trial:
    """Return one trial. Raises UserError if its file is damaged or missing."""
    try:
        values = load_json(SearchPaths(search).trial(number).read_text())
        decisions = tuple(
            SchedulingDecision(
                int(each["decision"]),
                FoldTask(number, each["fold"], each["epochs"]),
                _numbers(each["pending"]),
            )
            for each in values["decisions"]
        )
        parent = Parent(**values["parent"]) if "parent" in values else None
        trial = Trial(values["trial"], dict(values["point"]), decisions, parent)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise _damaged(search, number, f"{type(error).__name__}: {error}") from error
    if trial.number != number or not decisions:
        raise _damaged(search, number, f"it contains {len(decisions)} decisions on trial {trial.number}")
    return trial


def _as_ranges(numbers: Iterable[int]) -> str:
    """Return ascending numbers as text: `0-3 7`. With a thousand workers, a list would be most of a trial's file."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return " ".join(f"{first}-{last}" if first < last else f"{first}" for first, last in ranges)


def _numbers(text: str | list[int]) -> Collection[int]:
    """Return the numbers of ranges as text; older files have a list."""
    if isinstance(text, list):
        return array("i", text)
    found = array("i")  # a tuple of a thousand numbers needs ten times the memory
    for first, _, last in (part.partition("-") for part in text.split()):
        found.extend(range(int(first), int(last or first) + 1))
    return found


def read_result(search: Path, fold_task: FoldTask) -> Result | None:
    """Return the result of a fold task; None if it has not ended. Raises UserError if the file is damaged."""
    path = fold_task.result_path(search)
    try:
        values = load_json(path.read_text())
        earlier = tuple((float(start), float(end)) for start, end in values["earlier"])
        return Result(**values | {"fold_task": fold_task, "rows": tuple(values["rows"]), "earlier": earlier})
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        what = f"{path} is damaged ({type(error).__name__}: {error})"
        raise UserError(f"{what}; delete the file to train this fold task again") from error


def refuse_other_results(search: Path, trial: Trial) -> None:
    """Raise UserError if the folder of a new trial has results that do not record the trial's point."""
    point = json.loads(json.dumps(trial.point))  # as it is read from a file
    for path in sorted(SearchPaths(search).trials.glob(f"{trial.number:04d}/fold-*/epochs-*.json")):
        try:
            recorded = load_json(path.read_text())["point"]
        except (ValueError, KeyError, TypeError):  # the file is damaged
            recorded = None
        if recorded != point:
            raise UserError(
                f"{path}: the result of an earlier trial {trial.number} with another point, whose file "
                f"{SearchPaths(search).trial(trial.number)} is missing; restore this file, or delete {path.parents[1]}"
            )


def decisions_in_order(trials: Iterable[Trial]) -> list[SchedulingDecision]:
    """Return the decisions of all trials by number."""
    return sorted((d for trial in trials for d in trial.decisions), key=lambda decision: decision.number)


def drop_checkpoints(fold: RunPaths) -> None:
    """Remove all checkpoints of a fold, unless a process holds its lease; a task that is trained further starts again.

    The rename makes them invisible at once: a crash leaves all of them, or none that a training would read.
    """
    if fold.state.lease.exists():
        return
    shutil.rmtree(fold.state.dropped, ignore_errors=True)  # of a process that was killed here
    with suppress(OSError):  # no checkpoints
        fold.state.checkpoints.rename(fold.state.dropped)
        shutil.rmtree(fold.state.dropped, ignore_errors=True)


def _damaged(search: Path, number: int, what: str) -> UserError:
    return UserError(
        f"{SearchPaths(search).trial(number)} is damaged ({what}); restore the file, or delete {search} to start a new search"
    )


def _write(path: Path, values: dict[str, Any]) -> None:
    with atomic_write(path) as part:
        part.write_text(json.dumps(values, indent=1) + "\n")
