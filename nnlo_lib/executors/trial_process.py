"""Train a fold task in its own process, on GPU slots that no other training of this machine uses."""

from pathlib import Path

from nnlo_lib.executors.gpu_slots import reserve_gpus
from nnlo_lib.executors.trial_job import train_fold_task
from nnlo_lib.launch.attempt import LaunchOptions
from nnlo_lib.search.study.storage import read_config
from nnlo_lib.search.study.trial import FoldTask
from nnlo_lib.search.study.trial_run import fold_task_run
from nnlo_lib.state.attempt_outcome import EXIT_PREEMPTED


def train_trial(folder: Path, fold_task: FoldTask, launch_options: LaunchOptions) -> int:
    """Train a fold task once GPUs are free; return the exit status, 75 if a stop signal arrived before.

    Args:
        folder: folder of the search.
        fold_task: fold task.
        launch_options: launch options of each attempt.
    """
    experiment = read_config(folder)
    with reserve_gpus(fold_task_run(experiment, folder, fold_task)) as has_gpus:
        return train_fold_task(experiment, folder, fold_task, launch_options) if has_gpus else EXIT_PREEMPTED
