"""`nnlo data`: describe the data sets of an experiment."""

import argparse
import signal

from nnlo_lib.commands.experiment_file import add_experiment_arguments, chosen_seed, read_experiment

HELP = "describe the converted data sets of an experiment and their partition among the workers"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for the experiment file, the run and the seed."""
    add_experiment_arguments(parser)
    parser.add_argument("--run", help="name of the run in `runs:`; default: all runs")
    parser.add_argument(
        "--seed", type=int, help="seed of the partition among the workers; default: the first of `seeds:`"
    )


def run(options: argparse.Namespace) -> None:
    """Print the contents of the data sets and the samples of each worker."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `nnlo data FILE | head` exits without a message

    from nnlo_lib.workflow.data_overview import print_data_overview

    experiment, names = read_experiment(options)
    print_data_overview(experiment, names, chosen_seed(options, experiment))
