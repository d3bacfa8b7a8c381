"""A fold task as a job: pickle, record on disk, queue interface, deferred starts.

Fold tasks whose submission the queue refuses for now, and when to try again.

A fold task as a job that submitit can requeue.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from submitit.core.job_environment import JobEnvironment
from submitit.core.utils import DelayedSubmission

from nnlo_lib.batch import BatchJob
from nnlo_lib.batch.refusals import Backoff
from nnlo_lib.core.logging_setup import get_logger
from nnlo_lib.executors.trial_job import train_trial
from nnlo_lib.launch.attempt import LaunchOptions
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


@dataclass(frozen=True)
class TrialJob:
    """Job that trains a fold task.

    The job reads everything that may change from disk, because its pickle is written at submission.

    Attributes:
        folder: folder of the search.
        task: fold task.
        launcher: command that starts the ranks.
        attempt: number of the driver's submissions of the fold task, including this one.
    """

    folder: Path
    task: FoldTask
    launcher: str
    attempt: int

    def __call__(self) -> int:
        """Train; return the status of `train_trial`.

        A Slurm job that was saved and stopped does not return.
        """
        # Read before the launcher replaces the handler.
        hook = signal.getsignal(JobEnvironment._usr_sig())
        launch_options = LaunchOptions(
            self.launcher, attempt_number=self.attempt, on_preemption="requeue", requeue=requeue_by(hook), wait_for_lease=True
        )  # fmt: skip
        return train_trial(self.folder, self.task, launch_options)

    def checkpoint(self) -> DelayedSubmission:
        """Return the job for submitit to requeue: the same job, because its checkpoints are on disk."""
        return DelayedSubmission(self)


def requeue_by(hook: Any) -> Callable[[BatchJob], str]:
    """Return a function that requeues the job, or returns the reason why it cannot.

    The function calls submitit's own signal handler `hook`, which calls `checkpoint`, requeues the job and ends this process.
    """

    def requeue(job: BatchJob) -> str:
        if not callable(hook) or os.environ.get("SUBMITIT_EXECUTOR") != job.scheduler:
            return "the job was not submitted by submitit"
        try:
            hook(JobEnvironment._usr_sig(), None)
        except (OSError, subprocess.SubprocessError) as error:
            return str(error)
        return ""

    return requeue
