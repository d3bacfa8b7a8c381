"""`nnlo task aggregate`: the results of all jobs in one table."""

import argparse
from pathlib import Path

HELP = "gather the results of an experiment's jobs in one table"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the folders of the jobs, and the table."""
    parser.add_argument("--output", type=Path, required=True, help="results/<experiment>/summary.csv")
    parser.add_argument(
        "folders", type=Path, nargs="+", metavar="JOB_FOLDER", help="<run>/seed-<s>[/fold-<k>]"
    )


def run(options: argparse.Namespace) -> None:
    """Write one row per run, seed and fold as CSV."""
    from nnlo_lib.report.finished_job import load_jobs
    from nnlo_lib.report.tables import summarize, write_summary

    write_summary(summarize(load_jobs(options.folders)), options.output)
