"""Tell what came out of an experiment, as one self-contained HTML page."""

import argparse
import sys
from pathlib import Path

from nnlo_lib.errors import reported


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True, help="results/<experiment>/report.html")
    parser.add_argument("--experiment-file", type=Path, help="the YAML file that was run")
    parser.add_argument("--summary", type=Path, help="summary.csv, written by aggregate.py")
    parser.add_argument("--search", type=Path, help="results/<experiment>/search, if there was a search")
    parser.add_argument(
        "folders", type=Path, nargs="*", metavar="JOB_FOLDER", help="<run>/seed-<s>[/fold-<k>]"
    )
    options = parser.parse_args()

    from nnlo_lib.report.page import write_page, write_search_page

    if options.search and not options.folders:
        write_search_page(options.output, options.search)
    elif options.folders and options.summary and options.experiment_file:
        write_page(options.output, options.experiment_file, options.summary, options.folders, options.search)
    else:
        parser.error("give --search alone, or --experiment-file, --summary and the folders of jobs")


if __name__ == "__main__":
    sys.exit(reported(main)())
