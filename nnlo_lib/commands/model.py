"""`nnlo model`: the layers of an experiment's models."""

import argparse

from nnlo_lib.commands.experiment_file import add_experiment_arguments, read_experiment

HELP = "show the layers of an experiment's models: shapes, parameters, operations; nothing is trained"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the experiment file, and which of its runs."""
    add_experiment_arguments(parser)
    parser.add_argument("--run", help="which of `runs:`; default: all")


def run(options: argparse.Namespace) -> None:
    """Print the layers of each model."""
    from nnlo_lib.workflow.model_overview import print_model_overview

    experiment, names = read_experiment(options)
    print_model_overview(experiment, names, experiment.seeds[0])
