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

from nnlo_lib.launch.attempt import Wishes
from nnlo_lib.search.trial import Leaf
from nnlo_lib.state.outcome import EXIT_PREEMPTED
from nnlo_lib.state.scheduler import Job
from nnlo_lib.tune.config_file import read_config
from nnlo_lib.tune.seats import seated
from nnlo_lib.tune.trial_run import leaf_run
from nnlo_lib.tune.work import train_leaf


@dataclass(frozen=True)
class LeafJob:
    """Train a leaf. All that may change is read from the disk, for a queued job's pickle is as old as the job.

    folder: of the search; attempt: how often the driver has submitted the leaf.
    """

    folder: Path
    leaf: Leaf
    launcher: str
    attempt: int

    def __call__(self) -> int:
        """Train; return train_leaf's status. A job of Slurm that was stopped, saved, does not return."""
        hook = signal.getsignal(JobEnvironment._usr_sig())  # which the launcher takes over
        wishes = Wishes(
            self.launcher, attempt=self.attempt, on_preemption="requeue", requeue=requeue_by(hook), patient=True
        )  # fmt: skip
        experiment = read_config(self.folder)
        with seated(leaf_run(experiment, self.folder, self.leaf)) as has_gpus:
            return train_leaf(experiment, self.folder, self.leaf, wishes) if has_gpus else EXIT_PREEMPTED

    def checkpoint(self) -> DelayedSubmission:
        """Return what submitit is to run when the job is queued again: the same, as its checkpoints are on disk."""
        return DelayedSubmission(self)


def requeue_by(hook: Any) -> Callable[[Job], str]:
    """Let submitit's own handler of its signal ask `checkpoint` and queue the job again; it ends this process."""

    def requeue(job: Job) -> str:
        if not callable(hook) or os.environ.get("SUBMITIT_EXECUTOR") != job.scheduler:
            return "it was not submitted by submitit"
        try:
            hook(JobEnvironment._usr_sig(), None)
        except (OSError, subprocess.SubprocessError) as error:
            return str(error)
        return ""

    return requeue
