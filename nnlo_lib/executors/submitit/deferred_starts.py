"""Fold tasks whose submission the queue refuses for now, and when to try again."""

import time
from collections.abc import Callable, Iterable

from nnlo_lib.cluster.submission.backoff import Backoff
from nnlo_lib.core.logging_setup import get_logger
from nnlo_lib.search.study.trial import FoldTask

logger = get_logger(__name__)


class TransientRefusalError(Exception):
    """The queue does not answer or has reached a limit; the same request may be accepted later."""


class DeferredStarts:
    """Starts fold tasks in their order; after a refusal all wait, because a limit or an outage concerns all.

    Args:
        start: starts a fold task. Raises TransientRefusalError.
        clock: returns seconds.
    """

    def __init__(
        self, start: Callable[[FoldTask], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._start, self._clock = start, clock
        self._waiting: list[FoldTask] = []
        self._backoff, self._due = Backoff(), 0.0

    def start(self, fold_task: FoldTask) -> None:
        """Start a fold task now, or later if others wait or the queue refuses the job."""
        self._start_in_order([fold_task])

    def start_due(self) -> None:
        """Start the waiting fold tasks if the delay has passed."""
        if self._waiting and self._clock() >= self._due:
            waiting, self._waiting = self._waiting, []
            self._start_in_order(waiting)

    def _start_in_order(self, fold_tasks: Iterable[FoldTask]) -> None:
        for fold_task in fold_tasks:
            if self._waiting:
                self._waiting.append(fold_task)
                continue
            try:
                self._start(fold_task)
                self._backoff.succeeded()
            except TransientRefusalError as error:
                delay = self._backoff.delay()
                self._waiting, self._due = [fold_task], self._clock() + delay
                logger.warning(
                    f"trial {fold_task.trial} waits {delay:g} s before it is submitted again: {error}"
                )
