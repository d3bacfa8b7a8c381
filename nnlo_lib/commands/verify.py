"""`nnlo verify`: check the files of finished trainings."""

import argparse

HELP = "check the files of finished trainings: checksums, samples used per epoch, reproducibility"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the folders of the trainings and the option `--shards`."""
    parser.add_argument("folder", nargs="+", help="results/<experiment>/<run>/seed-<s>, or a folder above it")
    parser.add_argument(
        "--shards",
        action="store_true",
        help="also read all shards of the data set and compare their checksums",
    )
    parser.add_argument(
        "--evaluate",
        action="store_true",
        help="also evaluate each model again and compare the results with summary.json and evaluation.json; takes time",
    )
    parser.add_argument(
        "--trust",
        action="store_true",
        help="allow that --evaluate runs code that the results name: Python files and saved torch networks",
    )


def run(options: argparse.Namespace) -> int:
    """Print a line for each check; return 1 if a check failed, else 0."""
    from nnlo_lib.reliability.verify.verify_runs import verify_runs

    return verify_runs(options.folder, options.shards, options.evaluate, options.trust)
