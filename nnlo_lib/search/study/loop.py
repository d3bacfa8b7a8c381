"""Drive a search to its end, whoever trains."""

from threading import Event
from typing import Protocol

from nnlo_lib.core.errors import UserError
from nnlo_lib.search.study.study import Study
from nnlo_lib.search.study.trial import FoldTask


class Executor(Protocol):
    """Whoever trains leaves: result files tell the rest."""

    def start(self, leaf: FoldTask) -> None:
        """Begin to train a leaf, or go on where it stopped; its result is written when it has ended."""

    def wait(self) -> bool:
        """Return when something may have ended, within seconds; False: nothing more is trained, as a stop is wished."""


def run_study(study: Study, executor: Executor, lost: Event | None = None) -> bool:
    """Train until nothing is left to decide, `study.parallel` leaves at a time; False if the executor stopped before.

    lost: set when another driver has taken the search over. Raises UserError then.
    """
    started: set[FoldTask] = set()
    while True:
        if lost and lost.is_set():
            raise UserError(
                "another nnlo has taken this search over while this one was away; it goes on there"
            )
        study.refresh()
        for decision in study.unfinished[: study.parallel]:
            if decision.task not in started:
                started.add(decision.task)
                executor.start(decision.task)
        if study.decide():
            continue
        if not study.unfinished:
            return True
        if not executor.wait():
            return False
