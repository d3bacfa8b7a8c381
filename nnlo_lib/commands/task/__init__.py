"""`nnlo task`: one module per step that a rule of the workflow runs."""

import argparse

from nnlo_lib.commands.command_table import add_commands

HELP = "steps of the workflow's rules"
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
    """Add the steps."""
    add_commands(parser, STEPS)


def run(_: argparse.Namespace) -> None:
    """Run nothing: every step has a run of its own."""
