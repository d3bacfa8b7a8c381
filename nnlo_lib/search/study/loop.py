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
        """Wait until a fold task may have ended, and return True within seconds of its end.

        Return False if a stop was requested; no fold task is running then.
        """


def run_study(study: Study, executor: Executor, lost: Event | None = None) -> bool:
    """Run a search until no decision is left; return False if the executor stopped earlier.

    Args:
        study: makes the decisions; at most `study.parallel` started fold tasks are unfinished.
        executor: trains the fold tasks.
        lost: set when another process has taken over the lease of the search.

    Raises:
        UserError: if `lost` is set.
    """
    started: set[FoldTask] = set()
    while True:
        if lost and lost.is_set():
            raise UserError(
                "another nnlo process has taken over the lease of this search and continues it; this process exits"
            )
        study.refresh()
        # After a restart with a smaller `parallel`, more decisions may be unfinished than may run.
        for decision in study.unfinished[: study.parallel]:
            if decision.task not in started:
                started.add(decision.task)
                executor.start(decision.task)
        # Tasks are started before the next decision, so that they train while a slow sampler computes.
        if study.decide():
            continue
        if not study.unfinished:
            return True
        if not executor.wait():
            return False
