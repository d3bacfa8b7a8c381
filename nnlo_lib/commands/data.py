"""`nnlo data`: what an experiment learns from."""

import argparse
import signal

from nnlo_lib.commands.experiment_file import add_experiment_arguments, chosen_seed, read_experiment

HELP = "show what the data sets of an experiment hold, once converted"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the experiment file, and which of its trainings."""
    add_experiment_arguments(parser)
    parser.add_argument("--run", help="which of `runs:`; default: all")
    parser.add_argument(
        "--seed", type=int, help="of the division among workers; default: the first of `seeds:`"
    )


def run(options: argparse.Namespace) -> None:
    """Print what the data sets hold, and who of the workers has what."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `nnlo data FILE | head` ends without a word

    from nnlo_lib.workflow.data_overview import print_data_overview

    experiment, names = read_experiment(options)
    print_data_overview(experiment, names, chosen_seed(options, experiment))
