"""`nnlo plan`: what an experiment costs, before anything is submitted."""

import argparse

from nnlo_lib.commands.experiment_file import add_experiment_arguments, print_warnings, read_experiment

HELP = "say what an experiment will cost, jobs, ranks and hours, before anything is submitted"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the experiment file."""
    add_experiment_arguments(parser)


def run(options: argparse.Namespace) -> None:
    """Print jobs, ranks and hours."""
    from nnlo_lib.workflow.cost_table import cost_table

    experiment, _ = read_experiment(options)
    print(cost_table(experiment))
    print_warnings(experiment)
