"""`nnlo chaos`: train without faults, train again with random faults, and compare the results."""

import argparse

from nnlo_lib.commands.experiment_file import add_experiment_arguments, add_launcher_argument, read_experiment
from nnlo_lib.core.errors import UserError

HELP = "compare a training with random faults (SIGKILL, SIGTERM, damaged files, full disk) to one without"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for the experiment file, the run and the faults."""
    add_experiment_arguments(parser)
    parser.add_argument("--run", help="name of the run in `runs:`; default: the first run")
    parser.add_argument("--faults", type=int, default=20, help="number of faults; default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="random seed of the faults; default: %(default)s")
    add_launcher_argument(parser)


def run(options: argparse.Namespace) -> int:
    """Train twice; return 1 if the training with faults does not finish or a check of its result fails, else 0."""
    from nnlo_lib.reliability.chaos.run_twice import run_twice
    from nnlo_lib.workflow.single_run import prepare_task

    if options.faults < 1:
        raise UserError(f"--faults: must be at least 1, not {options.faults}")
    experiment, [name] = read_experiment(options, first=True)
    undisturbed, faulted = (
        prepare_task(experiment, name, experiment.seeds[0], None, f"{experiment.name}-{suffix}")
        for suffix in ("undisturbed", "chaos")
    )
    return run_twice(undisturbed, faulted, options.launcher, options.seed, options.faults)
