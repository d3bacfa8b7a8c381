"""`nnlo search`: a whole search, without Snakemake."""

import argparse

from nnlo_lib.commands.experiment_file import add_experiment_arguments, add_launcher_argument

HELP = "do the hyper-parameter search of an experiment, without Snakemake"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the experiment file, and what trains the trials."""
    add_experiment_arguments(parser)
    add_launcher_argument(parser)
    parser.add_argument(
        "--replay", action="store_true", help="train nothing: make each decision again from what it knew"
    )
    parser.add_argument(
        "--executor", default="local", choices=["local", "mpi", "submitit"],
        help="local: processes of this machine; mpi: one allocation, rank 0 coordinates, blocks of ranks train; "
        "submitit: jobs of Slurm; default: %(default)s",
    )  # fmt: skip
    parser.add_argument("--ranks", type=int, help="of mpi's allocation; default: as search.parallel needs")


def run(options: argparse.Namespace) -> int:
    """Search, or replay a search, and return the exit status."""
    from nnlo_lib.executors.search_run import replay_search, run_search
    from nnlo_lib.experiment.load import load_experiment

    experiment = load_experiment(options.file, options.changes)
    if options.replay:
        return replay_search(experiment)
    return run_search(experiment, options.launcher, options.executor, options.ranks)
