"""Main loop of a search: decide, start fold tasks, wait for results."""

from threading import Event
from typing import Protocol

from nnlo_lib.core.errors import UserError
from nnlo_lib.search.study.study import Study
from nnlo_lib.search.study.trial import FoldTask


class Executor(Protocol):
    """Trains fold tasks and writes their result files."""

    def start(self, fold_task: FoldTask) -> None:
        """Start or resume a fold task; its result is written when it has ended."""

    def wait(self) -> bool:
        """Wait until a fold task may have ended, and return True within seconds after that.

        Return False if a stop was requested; no fold task is in training any more then.
        """


def run_study(study: Study, executor: Executor, lost: Event | None = None) -> bool:
    """Run a search until no decision is left; return False if the executor stopped before.

    Args:
        study: decides; at most `study.parallel` fold tasks are unfinished at a time.
        executor: trains.
        lost: set when another driver has taken over the search.

    Raises:
        UserError: if `lost` is set.
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
