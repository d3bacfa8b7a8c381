"""Train a fold of a trial in a process of its own, on GPUs that no other trial of this machine uses."""

from pathlib import Path

from nnlo_lib.executors.gpu_slots import reserve_gpus
from nnlo_lib.executors.trial_job import train_fold_task
from nnlo_lib.launch.attempt import LaunchOptions
from nnlo_lib.search.study.storage import read_config
from nnlo_lib.search.study.trial import FoldTask
from nnlo_lib.search.study.trial_run import fold_task_run
from nnlo_lib.state.outcome import EXIT_PREEMPTED


def train_trial(folder: Path, leaf: FoldTask, wishes: LaunchOptions) -> int:
    """Train it once GPUs are free, and return the exit status; 75 if it was asked to stop before there were any."""
    experiment = read_config(folder)
    with reserve_gpus(fold_task_run(experiment, folder, leaf)) as has_gpus:
        return train_fold_task(experiment, folder, leaf, wishes) if has_gpus else EXIT_PREEMPTED
