"""A fold task as a job that submitit submits."""

from dataclasses import dataclass
from pathlib import Path

from nnlo_lib.executors.trial_job import train_trial
from nnlo_lib.launch.attempt import LaunchOptions
from nnlo_lib.search.study.trial import FoldTask


@dataclass(frozen=True)
class TrialJob:
    """Job that trains a fold task.

    The job reads everything that may change from disk, because its pickle is written at submission, and a requeued job loads it again.
    """

    folder: Path  # folder of the search
    task: FoldTask  # fold task
    launcher: str  # command that starts the ranks
    attempt: int  # number of the driver's submissions of the fold task, including this one

    def __call__(self) -> int:
        """Train; return the status of `train_trial`. The launcher replaces submitit's handlers of signals."""
        options = LaunchOptions(
            self.launcher, attempt_number=self.attempt, on_preemption="requeue", wait_for_lease=True
        )
        return train_trial(self.folder, self.task, options)
