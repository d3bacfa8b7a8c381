"""`nnlo run`: one training, without Snakemake."""

import argparse

from nnlo_lib.commands.experiment_file import (
    add_experiment_arguments,
    add_launcher_argument,
    chosen_seed,
    read_experiment,
)

HELP = "do one training of an experiment, through MPI, without Snakemake"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the experiment file, which of its trainings, and the launcher."""
    add_experiment_arguments(parser)
    parser.add_argument("--run", help="which of `runs:`; default: the first")
    parser.add_argument("--seed", type=int, help="default: the first of `seeds:`")
    parser.add_argument("--fold", type=int, help="default: 0 if there are folds")
    add_launcher_argument(parser)


def run(options: argparse.Namespace) -> int:
    """Train, and return the exit status of the training."""
    from nnlo_lib.workflow.single_run import run_single_training

    experiment, [name] = read_experiment(options, first=True)
    seed = chosen_seed(options, experiment)
    return run_single_training(experiment, name, seed, options.fold, options.launcher)
