"""`nnlo search`: run the hyperparameter search of an experiment without Snakemake."""

import argparse

from nnlo_lib.commands.experiment_file import add_experiment_arguments, add_launcher_argument

HELP = "run the hyperparameter search of an experiment without Snakemake"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for the experiment file, the launcher, the executor and the replay."""
    add_experiment_arguments(parser)
    add_launcher_argument(parser)
    parser.add_argument(
        "--replay",
        action="store_true",
        help="recompute each decision of a previous search from the results then known, without training, "
        "and print the decisions that differ",
    )
    parser.add_argument(
        "--executor", default="local", choices=["local", "mpi", "submitit"],
        help="local: processes on this machine; mpi: one MPI allocation, in which rank 0 coordinates and rank groups train; "
        "submitit: Slurm jobs; default: %(default)s",
    )  # fmt: skip
    parser.add_argument(
        "--ranks",
        type=int,
        help="number of ranks for --executor mpi; default: SLURM_NTASKS, else 1 + search.parallel * parallel.ranks",
    )


def run(options: argparse.Namespace) -> int:
    """Run or replay the search and return its exit status."""
    from nnlo_lib.executors.search_run import replay_search, run_search
    from nnlo_lib.experiment.automatic_gpus import refuse_automatic_gpus
    from nnlo_lib.experiment.load import load_experiment
    from nnlo_lib.preflight.preflight import load_and_check

    if options.replay:
        return replay_search(load_experiment(options.file, options.changes))
    if options.executor == "submitit":
        refuse_automatic_gpus(options.file, options.changes)
    return run_search(
        load_and_check(options.file, options.changes), options.launcher, options.executor, options.ranks
    )
