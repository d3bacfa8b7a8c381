"""`nnlo task trial`: one fold of one trial, in a process of its own."""

import argparse
from pathlib import Path

from nnlo_lib.commands.experiment_file import add_launcher_argument
from nnlo_lib.launch.preemption_policy import PREEMPTION_POLICIES

HELP = "train a fold of a trial up to an epoch"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the search, the fold of the trial, and how its ranks are started."""
    parser.add_argument("folder", type=Path, help="results/<experiment>/search")
    for name in ("trial", "fold", "epochs"):
        parser.add_argument(name, type=int)
    parser.add_argument(
        "--minutes", type=float, help="time limit; under a scheduler the ranks save before it"
    )
    add_launcher_argument(parser)
    parser.add_argument("--attempt", type=int, help="how often Snakemake has started this job")
    parser.add_argument(
        "--on-preemption", choices=PREEMPTION_POLICIES, default="exit", help="under a scheduler, after saving"
    )


def run(options: argparse.Namespace) -> int:
    """Train; return 0 with a result, 75 saved and stopped, 1 to be tried again, 2 where the disk refuses."""
    from nnlo_lib.executors.trial_process import train_trial
    from nnlo_lib.launch.attempt import LaunchOptions
    from nnlo_lib.search.study.trial import FoldTask

    fold_task = FoldTask(options.trial, options.fold, options.epochs)
    launch_options = LaunchOptions(
        options.launcher, options.minutes, options.attempt, options.on_preemption, wait_for_lease=True
    )
    return train_trial(options.folder, fold_task, launch_options)
