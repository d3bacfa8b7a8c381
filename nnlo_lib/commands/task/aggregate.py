"""`nnlo task aggregate`: write the results of all jobs of an experiment as one table."""

import argparse
from pathlib import Path

HELP = "write the results of all jobs of an experiment as one table"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the folders of the jobs and the path of the table."""
    parser.add_argument(
        "--output", type=Path, required=True, help="table to write: results/<experiment>/summary.csv"
    )
    parser.add_argument(
        "folders",
        type=Path,
        nargs="+",
        metavar="JOB_FOLDER",
        help="folder of a job: results/<experiment>/<run>/seed-<s>[/fold-<k>]",
    )


def run(options: argparse.Namespace) -> None:
    """Write one row per run, seed and fold as CSV."""
    from nnlo_lib.report.finished_job import load_jobs
    from nnlo_lib.report.tables import summarize, write_summary

    write_summary(summarize(load_jobs(options.folders)), options.output)
