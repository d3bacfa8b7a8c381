"""`nnlo simulate`: train on the virtual machine of parallel.simulation."""

import argparse

from nnlo_lib.commands.experiment_file import add_experiment_arguments, chosen_seed, read_experiment

HELP = "run an experiment on the virtual machine of parallel.simulation: time to accuracy and bytes"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the experiment file, which of its trainings, and the target."""
    add_experiment_arguments(parser)
    parser.add_argument("--run", help="which of `runs:`; default: all")
    parser.add_argument("--seed", type=int, help="default: the first of `seeds:`")
    parser.add_argument(
        "--target", type=float, help="validation accuracy to reach; default: the best that all runs reach"
    )


def run(options: argparse.Namespace) -> int:
    """Train in virtual time, in results/<experiment>-simulated, and return the exit status."""
    from nnlo_lib.experiment.load import load_experiment
    from nnlo_lib.workflow.simulation import simulate_runs

    given, names = read_experiment(options)
    virtual = [f"name={given.name}-simulated", "parallel.transport=simulated"]
    experiment = load_experiment(options.file, [*options.changes, *virtual])
    return simulate_runs(experiment, names, chosen_seed(options, experiment), options.target)
