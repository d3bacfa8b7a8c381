"""`nnlo check`: validate an experiment file, try its models on one batch, and summarize its trainings."""

import argparse

from nnlo_lib.commands.experiment_file import (
    add_experiment_arguments,
    print_warnings,
    read_checked_experiment,
)

HELP = "validate an experiment file and try its models on one batch, without training"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for the experiment file."""
    add_experiment_arguments(parser)
    parser.add_argument(
        "--profile", choices=["slurm"], help="also compare the jobs with what this site's Slurm offers"
    )


def run(options: argparse.Namespace) -> None:
    """Print a summary of the trainings. Raises UserError that lists the errors of the experiment file, or jobs that cannot start."""
    from nnlo_lib.preflight.preflight import warn_about_machine
    from nnlo_lib.workflow.plan_summary import summarize_plan

    experiment, _ = read_checked_experiment(options)
    print(f"{options.file} is valid: {summarize_plan(experiment)}")
    print_warnings(experiment)
    warn_about_machine(experiment)
    if options.profile:
        from nnlo_lib.cluster.slurm.site_check import refuse_impossible_jobs

        print(refuse_impossible_jobs(experiment))
