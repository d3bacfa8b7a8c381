"""Train one job of an experiment: `nnlo task train`."""

import sys

from nnlo_lib.cli import main

if __name__ == "__main__":
    main(["task", "train", *sys.argv[1:]])
