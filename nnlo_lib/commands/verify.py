"""`nnlo verify`: check the files of finished trainings."""

import argparse

from nnlo_lib.core.errors import UserError

HELP = "check the files of finished trainings: checksums, samples used per epoch, reproducibility"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the folders of the trainings and the option `--shards`."""
    parser.add_argument("folder", nargs="+", help="results/<experiment>/<run>/seed-<s>, or a folder above it")
    parser.add_argument(
        "--shards",
        action="store_true",
        help="also read all shards of the data set and compare their checksums",
    )
    for option in ("--evaluate", "--trust"):  # of earlier versions
        parser.add_argument(option, action="store_true", help=argparse.SUPPRESS)


def run(options: argparse.Namespace) -> int:
    """Print a line for each check; return 1 if a check failed, else 0."""
    from nnlo_lib.reliability.verify.verify_runs import verify_runs

    if options.evaluate or options.trust:
        raise UserError(
            "nnlo verify: --evaluate and --trust are no longer possible; to evaluate a model again: nnlo evaluate FOLDER"
        )
    return verify_runs(options.folder, options.shards)
