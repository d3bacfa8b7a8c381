"""`nnlo run`: run one training of an experiment without Snakemake."""

import argparse

from nnlo_lib.commands.experiment_file import (
    add_experiment_arguments,
    add_launcher_argument,
    chosen_seed,
    read_checked_experiment,
)

HELP = "run one training of an experiment with MPI, without Snakemake"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for the experiment file, the run, its seed and fold, and the launcher."""
    add_experiment_arguments(parser)
    parser.add_argument("--run", help="name of the run in `runs:`; default: the first run")
    parser.add_argument("--seed", type=int, help="random seed; default: the first of `seeds:`")
    parser.add_argument(
        "--fold", type=int, help="number of the fold, from 0; default: 0 if the experiment has folds"
    )
    add_launcher_argument(parser)


def run(options: argparse.Namespace) -> int:
    """Run the training and return its exit status."""
    from nnlo_lib.preflight.preflight import warn_about_machine
    from nnlo_lib.workflow.single_run import run_single_training

    experiment, [name] = read_checked_experiment(options, first=True)
    seed = chosen_seed(options, experiment)
    warn_about_machine(experiment)
    return run_single_training(experiment, name, seed, options.fold, options.launcher)
