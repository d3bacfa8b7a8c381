"""Write the results of all jobs of an experiment as one table: `nnlo task aggregate`."""

import sys

from nnlo_lib.cli import main

if __name__ == "__main__":
    main(["task", "aggregate", *sys.argv[1:]])
