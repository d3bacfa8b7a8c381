"""`nnlo simulate`: train on the virtual machine that parallel.simulation describes."""

import argparse

from nnlo_lib.commands.experiment_file import add_experiment_arguments, chosen_seed, read_checked_experiment

HELP = "train on the virtual machine of parallel.simulation; print virtual time and bytes to a target metric"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for the experiment file, the run, the seed and the target."""
    add_experiment_arguments(parser)
    parser.add_argument("--run", help="name of the run in `runs:`; default: all runs")
    parser.add_argument("--seed", type=int, help="random seed; default: the first of `seeds:`")
    parser.add_argument(
        "--target",
        type=float,
        help="target value of the first validation metric; default: the best value that all runs reach",
    )


def run(options: argparse.Namespace) -> int:
    """Train in virtual time, with results in results/<experiment>-simulated; return the exit status."""
    from nnlo_lib.experiment.load import load_experiment
    from nnlo_lib.workflow.simulation import simulate_runs

    given, names = read_checked_experiment(options)
    # Another name keeps the results of real trainings of the same experiment. The experiment is loaded twice,
    # because its name must be known first.
    virtual = [f"name={given.name}-simulated", "parallel.transport=simulated"]
    experiment = load_experiment(options.file, [*options.changes, *virtual])
    return simulate_runs(experiment, names, chosen_seed(options, experiment), options.target)
