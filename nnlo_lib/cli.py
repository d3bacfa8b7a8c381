"""The `nnlo` command: a table of subcommands, which import their heavy packages only when they run."""

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any

from nnlo_lib.commands.arguments import CommandParser, add_commands, add_log_options
from nnlo_lib.core.errors import StopSignals, exit_on_user_error
from nnlo_lib.core.installation import __version__

COMMANDS = {  # name: module in nnlo_lib.commands
    "init": "generate",
    "check": "inspect",
    "plan": "inspect",
    "all": "run",
    "run": "run",
    "search": "run",
    "evaluate": "results",
    "predict": "results",
    "export": "results",
    "simulate": "run",
    "data": "inspect",
    "model": "inspect",
    "watch": "watch",
    "status": "watch",
    "report": "watch",
    "doctor": "watch",
    "verify": "results",
    "reproduce": "results",
    "import": "generate",
    "docs": "generate",
    "task": "task",
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a subcommand and exit with its status; after a UserError, log its message and exit with status 2."""

    def command() -> int | None:
        # Inside the wrapper: a signal can arrive during the imports of the subcommands.
        StopSignals().install()
        options = _parser().parse_args(arguments)
        _configure_logging(options)
        status: int | None = options.command(options)
        return status

    sys.exit(exit_on_user_error(command)())


def _configure_logging(options: argparse.Namespace) -> None:
    level, file = getattr(options, "log_level", None), getattr(options, "log_file", None)
    if level or file or any(name.startswith("NNLO_LOG_") for name in os.environ):
        from nnlo_lib.core.logging_setup import configure_logging

        configure_logging(level, file)


class _PrintCompletion(argparse.Action):
    """Prints shtab's script for a shell; shtab.add_argument_to would import shtab for each command."""

    def __call__(
        self, parser: argparse.ArgumentParser, _: Any, shell: Any, option: str | None = None
    ) -> None:
        import shtab

        print(shtab.complete(parser, shell))
        parser.exit()


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        prog="nnlo",
        description="Train neural networks on one machine or a cluster, as described by one experiment file.",
        epilog="To run a whole experiment: nnlo all FILE, or snakemake --profile slurm --configfile FILE",
    )
    parser.add_argument("--version", action="version", version=f"nnlo {__version__}")
    parser.add_argument(
        "--print-completion", choices=["bash", "zsh", "tcsh"], action=_PrintCompletion, default=argparse.SUPPRESS,
        help="print a script with which the shell completes commands and options, and exit",
    )  # fmt: skip
    add_log_options(parser, is_shown=True)
    add_commands(parser, COMMANDS)
    parser.set_defaults(parser=parser)  # `nnlo docs` writes a page about it
    return parser


if __name__ == "__main__":
    main()
