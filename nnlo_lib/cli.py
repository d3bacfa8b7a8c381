"""The `nnlo` command: a table of sub-commands. Nothing heavy is imported before one of them needs it."""

import argparse
import sys
from collections.abc import Sequence

from nnlo_lib.commands.command_table import add_commands
from nnlo_lib.core.errors import exit_on_user_error

COMMANDS = {  # name: module in nnlo_lib.commands
    "check": "check",
    "plan": "plan",
    "run": "run",
    "search": "search",
    "simulate": "simulate",
    "data": "data",
    "model": "model",
    "verify": "verify",
    "chaos": "chaos",
    "import": "import_",  # a keyword
    "docs": "docs",
    "task": "task",
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a sub-command; exit status 2 and one sentence for a user's mistake."""
    options = _parser().parse_args(arguments)
    sys.exit(exit_on_user_error(lambda: options.command(options))())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="nnlo",
        description="Neural network learning and optimization: one experiment file, any way of distributing.",
        epilog="The whole DAG: snakemake --profile profiles/local [--configfile FILE]",
    )
    add_commands(parser, COMMANDS)
    parser.set_defaults(parser=parser)  # `nnlo docs` writes a page about it
    return parser


if __name__ == "__main__":
    main()
