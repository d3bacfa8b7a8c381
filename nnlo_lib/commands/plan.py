"""`nnlo plan`: estimate the cost of an experiment before its jobs are submitted."""

import argparse

from nnlo_lib.commands.experiment_file import (
    add_experiment_arguments,
    print_warnings,
    read_checked_experiment,
)

HELP = "estimate the cost of an experiment (jobs, ranks, hours) before its jobs are submitted"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for the experiment file."""
    add_experiment_arguments(parser)


def run(options: argparse.Namespace) -> None:
    """Print a table of jobs, ranks, cores and hours."""
    from nnlo_lib.workflow.cost_table import cost_table

    experiment, _ = read_checked_experiment(options)
    print(cost_table(experiment))
    print_warnings(experiment)
