"""Write the trials of a search as a table, or its best trial as a run: `nnlo task search-results`."""

import sys

from nnlo_lib.cli import main

if __name__ == "__main__":
    main(["task", "search-results", *sys.argv[1:]])
