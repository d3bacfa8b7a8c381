"""A table of subcommands: each name has a module with HELP, add_arguments and run."""

import argparse
from collections.abc import Mapping
from importlib import import_module

LEVEL_NAMES = ("debug", "info", "warning", "error")


def add_commands(parser: argparse.ArgumentParser, modules: Mapping[str, str]) -> None:
    """Add a subcommand for each name in `modules`, which maps it to its module in nnlo_lib.commands."""
    subcommands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, module_name in modules.items():
        # Every module is imported, also for `nnlo --help`: heavy packages are therefore imported in `run`.
        module = import_module(f"nnlo_lib.commands.{module_name}")
        subcommand = subcommands.add_parser(name, help=module.HELP)
        subcommand.set_defaults(command=module.run)
        module.add_arguments(subcommand)
        add_log_options(subcommand, is_shown=False)


def add_log_options(parser: argparse.ArgumentParser, is_shown: bool) -> None:
    """Add the level and the file of the log, which all commands accept before and after their name."""
    # Without a default, so that the parser of a subcommand does not overwrite what stands before its name.
    for option, text, values in (
        ("--log-level", "least level of the log messages, also of the ranks; default: info", LEVEL_NAMES),
        (
            "--log-file",
            "file to which the log messages, also of the ranks, are appended with time stamps",
            None,
        ),
    ):
        shown = text if is_shown else argparse.SUPPRESS
        parser.add_argument(option, choices=values, default=argparse.SUPPRESS, help=shown)
