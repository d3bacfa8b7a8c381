"""`nnlo plan`: estimate the cost of an experiment before its jobs are submitted."""

import argparse

from nnlo_lib.commands.experiment_file import (
    add_experiment_arguments,
    print_lsf_requests,
    print_warnings,
    read_checked_experiment,
    refuse_automatic_gpus_of_cluster,
)

HELP = "estimate the cost of an experiment (jobs, ranks, hours) before its jobs are submitted"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for the experiment file."""
    add_experiment_arguments(parser)
    parser.add_argument("--profile", choices=["lsf"], help="also print what the jobs ask of LSF")


def run(options: argparse.Namespace) -> None:
    """Print a table of jobs, ranks, cores and hours."""
    from nnlo_lib.workflow.cost_table import cost_table

    refuse_automatic_gpus_of_cluster(options)
    experiment, _ = read_checked_experiment(options)
    print(cost_table(experiment))
    if options.profile:
        print_lsf_requests(experiment)
    print_warnings(experiment)
