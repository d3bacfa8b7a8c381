"""`nnlo task`: one module for each step that a rule of the workflow runs."""

import argparse

from nnlo_lib.commands.command_table import add_commands

HELP = "run one step of the workflow, as its rules do"
STEPS = {  # name: module in nnlo_lib.commands
    "fetch": "task.fetch",
    "convert": "task.convert",
    "train": "task.train",
    "evaluate": "task.evaluate",
    "aggregate": "task.aggregate",
    "report": "task.report",
    "search-results": "task.search_results",
    "trial": "task.trial",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add a subcommand for each step."""
    add_commands(parser, STEPS)


def run(_: argparse.Namespace) -> None:
    """Do nothing: the module of each step has its own `run`."""
