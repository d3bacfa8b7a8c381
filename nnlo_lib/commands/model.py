"""`nnlo model`: show the layers of an experiment's models, or time their iterations."""

import argparse

from nnlo_lib.commands.experiment_file import add_experiment_arguments, read_experiment

HELP = "show the layers of an experiment's models (shapes, parameters, operations), or time an iteration"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for the experiment file and the run."""
    add_experiment_arguments(parser)
    parser.add_argument("--run", help="name of the run in `runs:`; default: all runs")
    parser.add_argument(
        "--trust",
        action="store_true",
        help="allow that saved torch networks (.pt, .pt2) run their code when they are read, as model.trust does",
    )
    parser.add_argument(
        "--time",
        type=_positive,
        nargs="?",
        const=20,
        metavar="ITERATIONS",
        help="instead of the layers, print the median time of a training iteration on one rank, with made-up samples, "
        "without data loading and exchanges; 20 iterations without a number",
    )


def _positive(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text)):
        raise argparse.ArgumentTypeError(f"expected a positive integer, got {text!r}")
    return int(text)


def run(options: argparse.Namespace) -> None:
    """Print the layers, or the times, of each model."""
    from nnlo_lib.workflow.model_overview import print_iteration_times, print_model_overview

    experiment, names = read_experiment(options)
    if options.time:
        print_iteration_times(experiment, names, options.time, options.trust)
        return
    print_model_overview(experiment, names, experiment.seeds[0], options.trust)
