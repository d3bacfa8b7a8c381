"""`nnlo task search-results`: write the trials of a search as a table, or the best trial as a run."""

import argparse
from pathlib import Path

HELP = "write the table of a search's trials, or the run that retrains its best trial"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for the folder of the search and the files to write."""
    parser.add_argument("--folder", type=Path, required=True, help="results/<experiment>/search")
    parser.add_argument("--table", type=Path, help="trials.csv to write")
    parser.add_argument(
        "--config", type=Path, help="config.json to write for the best trial; best.yaml is also written"
    )
    parser.add_argument(
        "--experiment-file",
        type=Path,
        help="experiment file with the seeds and resources of the retraining; default: those of the search",
    )


def run(options: argparse.Namespace) -> None:
    """Write the requested files."""
    from nnlo_lib.experiment.load import load_experiment
    from nnlo_lib.search.results.best import write_outcome
    from nnlo_lib.search.results.trials_csv import write_table
    from nnlo_lib.search.study.frozen_settings import freeze_or_verify_settings
    from nnlo_lib.search.study.storage import load_study, write_config
    from nnlo_lib.workflow.search_plan import SearchPlan

    if options.experiment_file:
        write_config(freeze_or_verify_settings(options.folder, load_experiment(options.experiment_file)))
    record = load_study(options.folder)
    if options.table:
        write_table(options.table, record)
    if options.config:
        write_outcome(options.folder)
        options.config.write_text(SearchPlan(record.experiment, True).resolved_best())
