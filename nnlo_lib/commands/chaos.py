"""`nnlo chaos`: train undisturbed, then under random faults, and compare."""

import argparse

from nnlo_lib.commands.experiment_file import add_experiment_arguments, add_launcher_argument, read_experiment
from nnlo_lib.core.errors import UserError

HELP = (
    "train undisturbed, then under random faults (kill -9, SIGTERM, torn files, full disk), and compare bits"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the experiment file, which of its runs, and the faults."""
    add_experiment_arguments(parser)
    parser.add_argument("--run", help="which of `runs:`; default: the first")
    parser.add_argument("--faults", type=int, default=20, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="of the faults; default: %(default)s")
    add_launcher_argument(parser)


def run(options: argparse.Namespace) -> int:
    """Train twice; return 1 if the faults changed the result."""
    from nnlo_lib.reliability.chaos.run_twice import run_twice
    from nnlo_lib.workflow.single_run import prepare_task

    if options.faults < 1:
        raise UserError("--faults: at least 1")
    experiment, [name] = read_experiment(options, first=True)
    undisturbed, faulted = (
        prepare_task(experiment, name, experiment.seeds[0], None, f"{experiment.name}-{suffix}")
        for suffix in ("undisturbed", "chaos")
    )
    return run_twice(undisturbed, faulted, options.launcher, options.seed, options.faults)
