"""Gather the results of an experiment's jobs in one table."""

import argparse
import sys
from pathlib import Path

from nnlo_lib.errors import reported


def main() -> None:
    """Write one row per run, seed and fold as CSV."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True, help="results/<experiment>/summary.csv")
    parser.add_argument(
        "folders", type=Path, nargs="+", metavar="JOB_FOLDER", help="<run>/seed-<s>[/fold-<k>]"
    )
    options = parser.parse_args()

    from nnlo_lib.report.job import load_jobs
    from nnlo_lib.report.tables import summarize, write_summary

    write_summary(summarize(load_jobs(options.folders)), options.output)


if __name__ == "__main__":
    sys.exit(reported(main)())
