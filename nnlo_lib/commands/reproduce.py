"""`nnlo reproduce`: write an experiment file that repeats a finished training."""

import argparse
from pathlib import Path

HELP = "write an experiment file, and the user's files, that repeat a finished training bit for bit"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the folder of the training and the folder to write."""
    parser.add_argument("folder", type=Path, help="results/<experiment>/<run>/seed-<s>[/fold-<k>]")
    parser.add_argument("target", type=Path, help="new folder for experiment.yaml and the user's files")


def run(options: argparse.Namespace) -> None:
    """Write the files and print the command that repeats the training."""
    from nnlo_lib.reliability.reproduce import write_reproduction

    print(write_reproduction(options.folder, options.target))
