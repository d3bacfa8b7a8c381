"""Evaluate a trained model on the test split: `nnlo task evaluate`."""

import sys

from nnlo_lib.cli import main

if __name__ == "__main__":
    main(["task", "evaluate", *sys.argv[1:]])
