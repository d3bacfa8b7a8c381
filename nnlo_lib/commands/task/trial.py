"""`nnlo task trial`: train one fold task in its own process."""

import argparse
from pathlib import Path

from nnlo_lib.commands.experiment_file import add_launcher_argument
from nnlo_lib.launch.preemption_policy import PREEMPTION_POLICIES, parse_preemption_policy

HELP = "train a fold task: one fold of one trial up to an epoch"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for the search, the fold task and the launcher."""
    parser.add_argument("folder", type=Path, help="folder of the search: results/<experiment>/search")
    parser.add_argument("trial", type=int, help="number of the trial, from 0")
    parser.add_argument("fold", type=int, help="number of the fold, from 0")
    parser.add_argument("epochs", type=int, help="last epoch to train")
    parser.add_argument(
        "--minutes", type=float, help="time limit in minutes; in a batch job the ranks save before it"
    )
    add_launcher_argument(parser)
    parser.add_argument("--attempt", type=int, help="number of Snakemake's attempt, from 1")
    parser.add_argument(
        "--on-preemption",
        type=parse_preemption_policy,
        choices=PREEMPTION_POLICIES,
        default="exit",
        help="action in a batch job after the ranks have saved: see profiles/slurm; default: %(default)s",
    )


def run(options: argparse.Namespace) -> int:
    """Train the fold task; return the exit status.

    It is 0 if the result was written, 75 if the ranks saved and stopped, 1 if the task can be tried again, and
    2 if the disk is full.
    """
    from nnlo_lib.executors.trial_process import train_trial
    from nnlo_lib.launch.attempt import LaunchOptions
    from nnlo_lib.search.study.trial import FoldTask

    fold_task = FoldTask(options.trial, options.fold, options.epochs)
    launch_options = LaunchOptions(
        options.launcher, options.minutes, options.attempt, options.on_preemption, wait_for_lease=True
    )
    return train_trial(options.folder, fold_task, launch_options)
