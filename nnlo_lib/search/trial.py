"""The files of a search, which are all of its state: one for each trial, one for each piece of training that ended.

trials/0007.json                    what was asked for, when it was decided, and what was not known then
trials/0007/fold-0/                 run folder of a fold
trials/0007/fold-0/epochs-9.json    what came of training it up to epoch 9
"""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from nnlo_lib.data.atomic import replacing

Point = dict[str, Any]  # value of each key that matters, by its path
Status = Literal["finished", "failed", "unwanted"]  # unwanted: a constraint refused it


@dataclass(frozen=True, order=True)
class Leaf:
    """One piece of work: train a fold of a trial until so many epochs are done."""

    trial: int
    fold: int
    epochs: int

    def path(self, search: Path) -> Path:
        """Return the file of its result."""
        return self.folder(search) / f"epochs-{self.epochs}.json"

    def folder(self, search: Path) -> Path:
        """Return the run folder of the fold."""
        return search / f"trials/{self.trial:04d}/fold-{self.fold}"


@dataclass(frozen=True)
class Decision:
    """That a leaf is to be trained. number: counts the decisions of a search; pending: those without a result then."""

    number: int
    leaf: Leaf
    pending: tuple[int, ...]


@dataclass(frozen=True)
class Trial:
    """A candidate and the decisions on it, the first of which made it."""

    number: int
    point: Point
    decisions: tuple[Decision, ...] = ()


@dataclass(frozen=True)
class Result:
    """What came of a leaf. rows: of the history, from epoch 1; seconds: of training in all attempts; cores, gpus: used.

    started, ended: of this leaf, seconds since 1970.
    """

    leaf: Leaf
    status: Status
    rows: tuple[dict[str, float], ...] = ()
    error: str = ""
    started: float = 0.0
    ended: float = 0.0
    cores: int = 1
    gpus: int = 0
    parameters: int | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """Wall time of this leaf."""
        return self.ended - self.started

    def write(self, search: Path) -> None:
        """Publish, in one move."""
        _write(self.leaf.path(search), asdict(self))


def write_trial(search: Path, trial: Trial) -> None:
    """Write a trial's file, in one move."""
    decisions = [
        {"decision": d.number, "fold": d.leaf.fold, "epochs": d.leaf.epochs, "pending": list(d.pending)}
        for d in trial.decisions
    ]
    values = {"trial": trial.number, "point": trial.point, "decisions": decisions}
    _write(search / f"trials/{trial.number:04d}.json", values)


def read_trials(search: Path) -> list[Trial]:
    """Return all trials by number."""
    return [_trial(json.loads(path.read_text())) for path in sorted((search / "trials").glob("[0-9]*.json"))]


def read_trial(search: Path, number: int) -> Trial:
    """Return one trial."""
    return _trial(json.loads((search / f"trials/{number:04d}.json").read_text()))


def read_result(search: Path, leaf: Leaf) -> Result | None:
    """Return what came of a leaf, if it has ended."""
    try:
        values = json.loads(leaf.path(search).read_text())
    except FileNotFoundError:
        return None
    return Result(**values | {"leaf": leaf, "rows": tuple(values["rows"])})


def _trial(values: dict[str, Any]) -> Trial:
    number = values["trial"]
    decisions = tuple(
        Decision(each["decision"], Leaf(number, each["fold"], each["epochs"]), tuple(each["pending"]))
        for each in values["decisions"]
    )
    return Trial(number, values["point"], decisions)


def _write(path: Path, values: dict[str, Any]) -> None:
    with replacing(path) as part:
        part.write_text(json.dumps(values, indent=1) + "\n")
