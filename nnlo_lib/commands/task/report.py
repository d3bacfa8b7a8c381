"""`nnlo task report`: write the results of an experiment as one HTML page."""

import argparse
from pathlib import Path

HELP = "write the results of an experiment as one self-contained HTML page"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for the page and its input files."""
    parser.add_argument(
        "--output", type=Path, required=True, help="page to write: results/<experiment>/report.html"
    )
    parser.add_argument("--experiment-file", type=Path, help="experiment file (YAML)")
    parser.add_argument("--summary", type=Path, help="summary.csv of `nnlo task aggregate`")
    parser.add_argument(
        "--search", type=Path, help="results/<experiment>/search, if the experiment has a search"
    )
    parser.add_argument(
        "--failed",
        type=Path,
        action="append",
        default=[],
        metavar="JOB_FOLDER",
        help="folder of a job without results, which the page names; may be repeated",
    )
    parser.add_argument(
        "folders",
        type=Path,
        nargs="*",
        metavar="JOB_FOLDER",
        help="folder of a job: results/<experiment>/<run>/seed-<s>[/fold-<k>]",
    )
    # `run` has only the options, and argparse cannot express the two valid combinations.
    parser.set_defaults(error=parser.error)


def run(options: argparse.Namespace) -> None:
    """Write the page; with --search and without job folders, the page shows only the search."""
    from nnlo_lib.report.page import write_page, write_search_page

    if options.search and not options.folders:
        write_search_page(options.output, options.search)
    elif options.folders and options.summary and options.experiment_file:
        write_page(
            options.output,
            options.experiment_file,
            options.summary,
            options.folders,
            options.search,
            options.failed,
        )
    else:
        options.error(
            "pass either --search alone, or --experiment-file, --summary and at least one JOB_FOLDER"
        )
