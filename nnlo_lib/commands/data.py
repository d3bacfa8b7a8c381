"""`nnlo data`: describe the data sets of an experiment, or list and remove the stores below data/."""

import argparse
import signal
from pathlib import Path

from nnlo_lib.commands.experiment_file import add_experiment_arguments, chosen_seed, read_experiment

HELP = "describe the converted data sets of an experiment, or list and remove stores"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for the experiment file, the run, the seed and the stores."""
    add_experiment_arguments(parser, is_required=False)
    parser.add_argument("--run", help="name of the run in `runs:`; default: all runs")
    parser.add_argument(
        "--seed", type=int, help="seed of the partition among the workers; default: the first of `seeds:`"
    )
    parser.add_argument(
        "--stores", action="store_true", help="list all stores and fetched files below data/, and their users"
    )
    parser.add_argument(
        "--remove", action="append", default=[], type=Path, metavar="FOLDER",
        help="remove a store or fetched files, a folder listed by --stores; may be repeated",
    )  # fmt: skip
    # `run` has only the options, and argparse cannot express which of them need the file.
    parser.set_defaults(error=parser.error)


def run(options: argparse.Namespace) -> None:
    """Print the data sets and the samples of each worker; or remove folders, then list the stores."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `nnlo data FILE | head` exits without a message
    if options.stores or options.remove:
        return _stores(options)
    if options.file is None:
        options.error("pass an experiment file, --stores or --remove FOLDER")

    from nnlo_lib.workflow.data_overview import print_data_overview

    experiment, names = read_experiment(options)
    print_data_overview(experiment, names, chosen_seed(options, experiment))
    return None


def _stores(options: argparse.Namespace) -> None:
    from nnlo_lib.core.text_format import size_text
    from nnlo_lib.data.store.inventory import remove_data_folder
    from nnlo_lib.workflow.store_overview import print_stores

    for folder in options.remove:
        print(f"removed {folder} ({size_text(remove_data_folder(folder))})")
    if options.stores:
        print_stores(read_experiment(options)[0] if options.file else None, options.file)
