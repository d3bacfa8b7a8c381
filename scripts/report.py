"""Write the results of an experiment as one HTML page: `nnlo task report`."""

import sys

from nnlo_lib.cli import main

if __name__ == "__main__":
    main(["task", "report", *sys.argv[1:]])
