"""A fold task as a job that submitit submits, and requeues after a signal of Slurm."""

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from submitit.core.job_environment import JobEnvironment
from submitit.core.utils import DelayedSubmission

from nnlo_lib.batch import BatchJob
from nnlo_lib.executors.trial_job import train_trial
from nnlo_lib.launch.attempt import LaunchOptions
from nnlo_lib.search.study.trial import FoldTask


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
        except (
            Exception
        ) as error:  # submitit asserts that the file it saves is new; scontrol can be missing or refuse
            return str(error) or type(error).__name__
        return ""

    return requeue
