"""`nnlo task train`: one job of an experiment."""

import argparse
import json
from pathlib import Path

from nnlo_lib.commands.experiment_file import add_launcher_argument
from nnlo_lib.launch.preemption_policy import PREEMPTION_POLICIES

HELP = "train one job of an experiment"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the run, its data, its folder, and how its ranks are started."""
    parser.add_argument("--config", type=Path, required=True, help="resolved run, written by configure.py")
    parser.add_argument("--manifest", type=Path, required=True, help="manifest.json of the data store")
    parser.add_argument("--folder", type=Path, required=True, help="where the results go")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--fold", type=int)
    parser.add_argument(
        "--minutes", type=float, help="time limit; under a scheduler the ranks save before it"
    )
    add_launcher_argument(parser)
    parser.add_argument("--attempt", type=int, default=1, help="how often Snakemake has started this job")
    parser.add_argument(
        "--on-preemption",
        choices=PREEMPTION_POLICIES,
        default="exit",
        help="under a scheduler, after saving: see profiles/slurm",
    )


def run(options: argparse.Namespace) -> int:
    """Start the ranks and wait for them."""
    from nnlo_lib.config import Run
    from nnlo_lib.launch.attempt import LaunchOptions, train_task
    from nnlo_lib.train.task import Task

    settings = json.loads(options.config.read_text())
    task = Task(
        settings["experiment"], settings["name"], Run.model_validate(settings["run"]), options.seed, options.fold,
        settings["folds"], options.manifest, options.folder,
    )  # fmt: skip
    how = LaunchOptions(options.launcher, options.minutes, options.attempt, options.on_preemption)
    return train_task(task, how).exit_status
