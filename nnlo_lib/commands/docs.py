"""`nnlo docs`: write the files that are generated."""

import argparse

HELP = "write the files that are generated from the configuration's types"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add whether the files are only compared."""
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file is out of step")


def run(options: argparse.Namespace) -> int:
    """Write the files, or with --check compare them and return 1 if one differs."""
    from nnlo_lib.config.docgen import write_all

    return write_all(options.check, options.parser)
