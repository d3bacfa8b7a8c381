"""`nnlo task aggregate`: write the results of all jobs of an experiment, and the differences between runs, as tables."""

import argparse
from pathlib import Path

HELP = "write the results of all jobs of an experiment, and the differences between runs, as tables"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the folders of the jobs and the path of the table."""
    parser.add_argument(
        "--output", type=Path, required=True, help="table to write: results/<experiment>/summary.csv"
    )
    parser.add_argument(
        "--comparisons", type=Path, help="table of the differences between runs to write: comparisons.csv"
    )
    parser.add_argument(
        "folders",
        type=Path,
        nargs="+",
        metavar="JOB_FOLDER",
        help="folder of a job: results/<experiment>/<run>/seed-<s>[/fold-<k>]",
    )


def run(options: argparse.Namespace) -> None:
    """Write one row per run, seed and fold as CSV, and one row per metric and pair of runs."""
    from nnlo_lib.report.finished_job import load_jobs
    from nnlo_lib.report.statistics.comparisons_csv import compare_all, write_comparisons
    from nnlo_lib.report.tables import summarize, write_summary

    jobs = load_jobs(options.folders)
    table = summarize(jobs)
    if options.comparisons:
        write_comparisons(compare_all(table, jobs), options.comparisons)
    write_summary(table, options.output)
