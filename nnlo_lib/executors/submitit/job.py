"""One leaf as a job that submitit can queue again."""

import os
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from submitit.core.job_environment import JobEnvironment
from submitit.core.utils import DelayedSubmission

from nnlo_lib.core.batch_system import BatchJob
from nnlo_lib.executors.gpu_slots import reserve_gpus
from nnlo_lib.executors.trial_job import train_fold_task
from nnlo_lib.launch.attempt import LaunchOptions
from nnlo_lib.search.study.storage import read_config
from nnlo_lib.search.study.trial import FoldTask
from nnlo_lib.search.study.trial_run import fold_task_run
from nnlo_lib.state.outcome import EXIT_PREEMPTED


@dataclass(frozen=True)
class TrialJob:
    """Train a leaf. All that may change is read from the disk, for a queued job's pickle is as old as the job.

    folder: of the search; attempt: how often the driver has submitted the leaf.
    """

    folder: Path
    task: FoldTask
    launcher: str
    attempt: int

    def __call__(self) -> int:
        """Train; return train_leaf's status. A job of Slurm that was stopped, saved, does not return."""
        hook = signal.getsignal(JobEnvironment._usr_sig())  # which the launcher takes over
        wishes = LaunchOptions(
            self.launcher, attempt_number=self.attempt, on_preemption="requeue", requeue=requeue_by(hook), wait_for_lease=True
        )  # fmt: skip
        experiment = read_config(self.folder)
        with reserve_gpus(fold_task_run(experiment, self.folder, self.task)) as has_gpus:
            return train_fold_task(experiment, self.folder, self.task, wishes) if has_gpus else EXIT_PREEMPTED

    def checkpoint(self) -> DelayedSubmission:
        """Return what submitit is to run when the job is queued again: the same, as its checkpoints are on disk."""
        return DelayedSubmission(self)


def requeue_by(hook: Any) -> Callable[[BatchJob], str]:
    """Let submitit's own handler of its signal ask `checkpoint` and queue the job again; it ends this process."""

    def requeue(job: BatchJob) -> str:
        if not callable(hook) or os.environ.get("SUBMITIT_EXECUTOR") != job.scheduler:
            return "it was not submitted by submitit"
        try:
            hook(JobEnvironment._usr_sig(), None)
        except (OSError, subprocess.SubprocessError) as error:
            return str(error)
        return ""

    return requeue
