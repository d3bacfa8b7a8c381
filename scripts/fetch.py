"""Fetch the original files of a data set: python scripts/fetch.py --dataset mnist --target data/mnist/raw"""

import sys

from nnlo_lib.cli import main

if __name__ == "__main__":
    main(["task", "fetch", *sys.argv[1:]])
