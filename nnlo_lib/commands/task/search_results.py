"""`nnlo task search-results`: write the trials of a search as a table, or the best trial as a run."""

import argparse
from pathlib import Path

HELP = "write the table of a search's trials, or the run that retrains its best trial"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for the folder of the search and the files to write."""
    parser.add_argument("--folder", type=Path, required=True, help="results/<experiment>/search")
    parser.add_argument("--table", type=Path, help="trials.csv to write")
    parser.add_argument(
        "--best", action="store_true", help="write best.yaml, and best/config.json beside the search's folder"
    )


def run(options: argparse.Namespace) -> None:
    """Write the requested files."""
    from nnlo_lib.search.results.trials_csv import write_table
    from nnlo_lib.search.study.storage import load_study
    from nnlo_lib.workflow.search_plan import SearchPlan

    record = load_study(options.folder)
    if options.table:
        write_table(options.table, record)
    if options.best:
        SearchPlan(record.experiment, True).write_best()
