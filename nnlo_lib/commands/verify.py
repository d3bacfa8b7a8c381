"""`nnlo verify`: check all that finished trainings left behind."""

import argparse

HELP = "check a finished run: checksums, each sample of each epoch used once, reproducible or not"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the folders."""
    parser.add_argument("folder", nargs="+", help="results/<experiment>/<run>/seed-<s>, or a folder above")
    parser.add_argument("--shards", action="store_true", help="also read all of the data set's shards")


def run(options: argparse.Namespace) -> int:
    """Print a line for each check; return 1 if something is wrong."""
    from nnlo_lib.reliability.verify.verify_runs import verify_runs

    return verify_runs(options.folder, options.shards)
