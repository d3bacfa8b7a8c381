"""`nnlo check`: is an experiment file fine, and what would it do?"""

import argparse

from nnlo_lib.commands.experiment_file import add_experiment_arguments, print_warnings, read_experiment

HELP = "check an experiment file, without running anything"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the experiment file."""
    add_experiment_arguments(parser)


def run(options: argparse.Namespace) -> None:
    """Print what the experiment trains, or raise UserError for each mistake."""
    from nnlo_lib.workflow.plan_summary import summarize_plan

    experiment, _ = read_experiment(options)
    print(f"{options.file} is fine: {summarize_plan(experiment)}")
    print_warnings(experiment)
