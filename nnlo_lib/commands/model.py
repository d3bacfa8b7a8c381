"""`nnlo model`: show the layers of an experiment's models."""

import argparse

from nnlo_lib.commands.experiment_file import add_experiment_arguments, read_experiment

HELP = "show the layers of an experiment's models (shapes, parameters, operations) without training"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for the experiment file and the run."""
    add_experiment_arguments(parser)
    parser.add_argument("--run", help="name of the run in `runs:`; default: all runs")
    parser.add_argument(
        "--trust",
        action="store_true",
        help="allow that saved torch networks (.pt, .pt2) run their code when they are read, as model.trust does",
    )


def run(options: argparse.Namespace) -> None:
    """Print the layers of each model."""
    from nnlo_lib.workflow.model_overview import print_model_overview

    experiment, names = read_experiment(options)
    print_model_overview(experiment, names, experiment.seeds[0], options.trust)
