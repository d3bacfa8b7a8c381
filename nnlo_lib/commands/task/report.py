"""`nnlo task report`: the results of an experiment as one HTML page."""

import argparse
from pathlib import Path

HELP = "write what came out of an experiment as one self-contained HTML page"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the page is made of."""
    parser.add_argument("--output", type=Path, required=True, help="results/<experiment>/report.html")
    parser.add_argument("--experiment-file", type=Path, help="the YAML file that was run")
    parser.add_argument("--summary", type=Path, help="summary.csv, written by aggregate.py")
    parser.add_argument("--search", type=Path, help="results/<experiment>/search, if there was a search")
    parser.add_argument(
        "folders", type=Path, nargs="*", metavar="JOB_FOLDER", help="<run>/seed-<s>[/fold-<k>]"
    )
    parser.set_defaults(error=parser.error)


def run(options: argparse.Namespace) -> None:
    """Write the page."""
    from nnlo_lib.report.page import write_page, write_search_page

    if options.search and not options.folders:
        write_search_page(options.output, options.search)
    elif options.folders and options.summary and options.experiment_file:
        write_page(options.output, options.experiment_file, options.summary, options.folders, options.search)
    else:
        options.error("give --search alone, or --experiment-file, --summary and the folders of jobs")
