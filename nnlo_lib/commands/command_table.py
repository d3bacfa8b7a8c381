"""A table of subcommands: each name has a module with HELP, add_arguments and run."""

import argparse
from collections.abc import Mapping
from importlib import import_module


def add_commands(parser: argparse.ArgumentParser, modules: Mapping[str, str]) -> None:
    """Add a subcommand for each name in `modules`, which maps it to its module in nnlo_lib.commands."""
    subcommands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, module_name in modules.items():
        # Every module is imported, also for `nnlo --help`: heavy packages are therefore imported in `run`.
        module = import_module(f"nnlo_lib.commands.{module_name}")
        subcommand = subcommands.add_parser(name, help=module.HELP)
        subcommand.set_defaults(command=module.run)
        module.add_arguments(subcommand)
