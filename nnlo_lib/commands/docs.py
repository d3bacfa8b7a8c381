"""`nnlo docs`: write the files that are generated from the configuration's types."""

import argparse

HELP = "write the files that are generated from the configuration's types"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the option `--check`."""
    parser.add_argument(
        "--check",
        action="store_true",
        help="write nothing; exit with status 1 if a generated file is outdated",
    )


def run(options: argparse.Namespace) -> int:
    """Write the files; with --check, print the differences instead and return 1 if there are any."""
    from nnlo_lib.config.docgen import write_all

    return write_all(options.check, options.parser)
