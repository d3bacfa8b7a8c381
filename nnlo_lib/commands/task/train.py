"""`nnlo task train`: train one job of an experiment."""

import argparse
import json
from pathlib import Path

from nnlo_lib.commands.experiment_file import add_launcher_argument
from nnlo_lib.launch.preemption_policy import PREEMPTION_POLICIES, parse_preemption_policy

HELP = "train one job of an experiment"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for the run, its data, its folder and its launcher."""
    parser.add_argument("--config", type=Path, required=True, help="config.json of the run")
    parser.add_argument("--manifest", type=Path, required=True, help="manifest.json of the store")
    parser.add_argument("--folder", type=Path, required=True, help="folder of the job's results")
    parser.add_argument("--seed", type=int, required=True, help="random seed of the job")
    parser.add_argument("--fold", type=int, help="number of the job's fold, from 0")
    parser.add_argument(
        "--minutes", type=float, help="time limit in minutes; in a batch job the ranks save before it"
    )
    add_launcher_argument(parser)
    parser.add_argument("--attempt", type=int, default=1, help="number of Snakemake's attempt, from 1")
    parser.add_argument(
        "--on-preemption",
        type=parse_preemption_policy,
        choices=PREEMPTION_POLICIES,
        default="exit",
        help="action in a batch job after the ranks have saved: see profiles/slurm; default: %(default)s",
    )


def run(options: argparse.Namespace) -> int:
    """Start the ranks, wait for them and return the exit status."""
    from nnlo_lib.config import Run
    from nnlo_lib.launch.attempt import LaunchOptions, train_task
    from nnlo_lib.train.task import Task

    settings = json.loads(options.config.read_text())
    task = Task(
        settings["experiment"], settings["name"], Run.model_validate(settings["run"]), options.seed, options.fold,
        settings["folds"], options.manifest, options.folder,
    )  # fmt: skip
    launch_options = LaunchOptions(options.launcher, options.minutes, options.attempt, options.on_preemption)
    return train_task(task, launch_options).exit_status
