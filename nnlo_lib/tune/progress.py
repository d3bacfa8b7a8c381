"""A line for each trial that has ended, while a search goes on."""

import math
import textwrap
import time

from nnlo_lib.search.drive import Executor
from nnlo_lib.search.folds import next_fold
from nnlo_lib.search.knowledge import Knowledge
from nnlo_lib.search.objective import mean_and_error
from nnlo_lib.search.record import Record
from nnlo_lib.search.row import row
from nnlo_lib.search.trial import Leaf
from nnlo_lib.search.words import clock, with_error
from nnlo_lib.state.speech import say

MOST = 100  # letters of a reason


class Told:
    """An executor that tells what the one inside it has done. record: reads the search as it is on disk."""

    def __init__(self, inner: Executor, record: Record) -> None:
        self._inner, self._record, self._begun = inner, record, time.monotonic()
        self._told = set(ended(record.known))

    def start(self, leaf: Leaf) -> None:
        """Pass it on."""
        self._inner.start(leaf)

    def wait(self) -> bool:
        """Wait as the executor does, and tell what has ended."""
        goes_on = self._inner.wait()
        self._record = self._record.again()
        for rung in ended(self._record.known):
            if rung not in self._told:
                say(line(self._record.known, *rung, time.monotonic() - self._begun))
                self._told.add(rung)
        return goes_on


def ended(known: Knowledge) -> list[tuple[int, int]]:
    """Return trials and the epochs at which they have ended, or wait for what comes of others."""
    return [
        (trial.number, epochs)
        for trial in known.trials
        for epochs in known.rungs(trial.number)
        if known.value(trial.number, epochs) is not None
        and (epochs < known.rungs(trial.number)[-1] or next_fold(known, trial.number) is None)
    ]


def line(known: Knowledge, trial: int, epochs: int, seconds: float) -> str:
    """Say what came of a trial after so many epochs, and how far the search is."""
    best = known.best()
    leader = f"best {row(known, best).objective:.5g}, trial {best}" if best is not None else "none yet"
    done = len({number for number, _ in ended(known)})
    said = _outcome(known, trial, epochs)
    return f"trial {trial}{said}  ({leader})  {done}/{known.search.trials}, {clock(seconds)}"


def _outcome(known: Knowledge, trial: int, epochs: int) -> str:
    worth, objective = known.value(trial, epochs), known.search.objective
    if worth is None or math.isinf(worth):
        there = row(known, trial)
        return f" {there.state}: {textwrap.shorten(there.reason, MOST)}"
    rung = f" after epoch {epochs}" if epochs < known.epochs else ""
    mean, error = mean_and_error(known.folds(trial, epochs))
    return f"{rung}  {objective.metric} {with_error(objective.sign * mean, error)}"
