"""Gather the results of an experiment's jobs in one table: `nnlo task aggregate`."""

import sys

from nnlo_lib.cli import main

if __name__ == "__main__":
    main(["task", "aggregate", *sys.argv[1:]])
