"""`nnlo task search-results`: the trials of a search as a table, or the best as a run."""

import argparse
from pathlib import Path

HELP = "write a table of a search's trials, or its best as a run to be trained"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the search, and what is written."""
    parser.add_argument("--folder", type=Path, required=True, help="results/<experiment>/search")
    parser.add_argument("--table", type=Path, help="trials.csv")
    parser.add_argument("--config", type=Path, help="of the best as a run; best.yaml is written, too")


def run(options: argparse.Namespace) -> None:
    """Write what is asked for."""
    from nnlo_lib.search.results.best import write_outcome
    from nnlo_lib.search.results.trials_csv import write_table
    from nnlo_lib.search.study.storage import load_study
    from nnlo_lib.workflow.search_plan import SearchPlan

    record = load_study(options.folder)
    if options.table:
        write_table(options.table, record)
    if options.config:
        write_outcome(options.folder)
        options.config.write_text(SearchPlan(record.experiment, True).resolved_best())
