"""Tell what came out of an experiment, as one self-contained HTML page."""

import argparse
import sys
from pathlib import Path

from nnlo_lib.errors import reported


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True, help="results/<experiment>/report.html")
    parser.add_argument("--experiment-file", type=Path, required=True, help="the YAML file that was run")
    parser.add_argument("--summary", type=Path, required=True, help="summary.csv, written by aggregate.py")
    parser.add_argument(
        "folders", type=Path, nargs="+", metavar="JOB_FOLDER", help="<run>/seed-<s>[/fold-<k>]"
    )
    options = parser.parse_args()

    from nnlo_lib.report.page import write_page

    write_page(options.output, options.experiment_file, options.summary, options.folders)


if __name__ == "__main__":
    sys.exit(reported(main)())
