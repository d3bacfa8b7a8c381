"""`nnlo all`, `run`, `search` and `simulate`: train the whole experiment by Snakemake, or parts of it without Snakemake."""

import argparse
import shlex

from nnlo_lib.commands.arguments import (
    add_experiment_arguments,
    add_launcher_argument,
    chosen_seed,
    read_checked_experiment,
)

ALL_HELP = "run a whole experiment, from its data to its page, with a line for each job"
ALL_EXAMPLE = "nnlo all mine.yaml --profile slurm"
RUN_HELP = "run one training of an experiment with MPI, without Snakemake"
RUN_EXAMPLE = "nnlo run mine.yaml --run four --seed 2"
SEARCH_HELP = "run the hyperparameter search of an experiment without Snakemake"
SEARCH_EXAMPLE = "nnlo search mine.yaml --set search.trials=30"
SIMULATE_HELP = (
    "train on the virtual machine of parallel.simulation; print virtual time and bytes to a target metric"
)
SIMULATE_EXAMPLE = "nnlo simulate mine.yaml --target 0.9"


def add_all_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the experiment file, the profile and options of Snakemake."""
    parser.add_argument("file", nargs="?", help="experiment file (YAML)")
    parser.add_argument(
        "--profile", default="local",
        help="local, slurm, lsf, or the folder of a profile of Snakemake; default: %(default)s",
    )  # fmt: skip
    parser.add_argument(
        "--snakemake", type=shlex.split, default=[], metavar="OPTIONS",
        help="more options of snakemake, quoted, such as --snakemake='--jobs 20 --retries 5'",
    )  # fmt: skip


def run_all(options: argparse.Namespace) -> int:
    """Run the jobs, print the comparison of the runs and return the exit status of Snakemake."""
    from nnlo_lib.core.errors import UserError
    from nnlo_lib.experiment.load import load_experiment
    from nnlo_lib.workflow.whole_experiment import EXPERIMENT_FILE, run_experiment

    if options.file is None:
        raise UserError(
            f"FILE: missing; name the experiment file, such as the one of nnlo init: nnlo all {EXPERIMENT_FILE}"
        )
    return run_experiment(load_experiment(options.file), options.file, options.profile, options.snakemake)


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for the experiment file, the run, its seed and fold, and the launcher."""
    add_experiment_arguments(parser)
    parser.add_argument("--run", help="name of the run in `runs:`; default: the first run")
    parser.add_argument("--seed", type=int, help="random seed; default: the first of `seeds:`")
    parser.add_argument(
        "--fold", type=int, help="number of the fold, from 0; default: 0 if the experiment has folds"
    )
    parser.add_argument(
        "--all", action="store_true",
        help="train all runs, seeds and folds one after the other, with a line for each; then write the page and print the comparison",
    )  # fmt: skip
    add_launcher_argument(parser)


def run_run(options: argparse.Namespace) -> int:
    """Run the training, or all trainings, and return the exit status."""
    from nnlo_lib.core.errors import UserError
    from nnlo_lib.experiment.owner import record_owner
    from nnlo_lib.preflight.preflight import warn_about_machine
    from nnlo_lib.workflow.single_run import run_single_training

    # The page shows the experiment file.
    if options.all and (options.changes or (options.run, options.seed, options.fold) != (None, None, None)):
        raise UserError("--all: trains what the experiment file says; remove --run, --seed, --fold and --set")
    experiment, [name] = read_checked_experiment(options, first=True)
    if options.all:
        from nnlo_lib.workflow.whole_experiment import train_all

        if experiment.search:
            raise UserError(
                f"--all: the experiment has a `search:` section; use nnlo all {options.file}, or nnlo search"
            )
        warn_about_machine(experiment)
        record_owner(experiment.name, options.file)
        return train_all(experiment, options.file, options.launcher)
    seed = chosen_seed(options, experiment)
    warn_about_machine(experiment)
    record_owner(experiment.name, options.file)
    return run_single_training(experiment, name, seed, options.fold, options.launcher)


def add_search_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for the experiment file, the launcher, the executor and the replay."""
    add_experiment_arguments(parser)
    add_launcher_argument(parser)
    parser.add_argument(
        "--replay", action="store_true",
        help="recompute each decision of a previous search from the results then known, without training, "
        "and print the decisions that differ",
    )  # fmt: skip
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


def run_search(options: argparse.Namespace) -> int:
    """Run or replay the search and return its exit status."""
    from nnlo_lib.config.paths import ExperimentPaths
    from nnlo_lib.core.logging_setup import get_logger
    from nnlo_lib.experiment.load import load_with_origins, refuse_automatic_gpus
    from nnlo_lib.experiment.owner import record_owner, refuse_other_owner

    experiment, origins = load_with_origins(options.file, options.changes)
    refuse_other_owner(experiment.name, options.file)
    if experiment.search and not options.replay:
        # Before the imports and checks, which take seconds.
        folder = ExperimentPaths(experiment.name).search.folder
        get_logger(__name__).info(
            f"search of {options.file} in {folder}: checking the data and one batch of the model"
        )

    from nnlo_lib.executors.search_run import replay_search, run_search
    from nnlo_lib.preflight.preflight import check_experiment

    if options.replay:
        return replay_search(experiment)
    if options.executor == "submitit":
        refuse_automatic_gpus(options.file, options.changes)
    check_experiment(experiment, origins)
    if experiment.search:
        record_owner(experiment.name, options.file)
    return run_search(experiment, options.launcher, options.executor, options.ranks)


def add_simulate_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for the experiment file, the run, the seed and the target."""
    add_experiment_arguments(parser)
    parser.add_argument("--run", help="name of the run in `runs:`; default: all runs")
    parser.add_argument("--seed", type=int, help="random seed; default: the first of `seeds:`")
    parser.add_argument(
        "--target",
        type=float,
        help="target value of the first validation metric; default: the best value that all runs reach",
    )


def run_simulate(options: argparse.Namespace) -> int:
    """Train in virtual time, with results in results/<experiment>-simulated; return the exit status."""
    from nnlo_lib.experiment.load import load_experiment
    from nnlo_lib.workflow.single_run import simulate_runs

    given, names = read_checked_experiment(options)
    # Another name keeps the results of real trainings of the same experiment. The experiment is loaded twice,
    # because its name must be known first.
    virtual = [f"name={given.name}-simulated", "parallel.transport=simulated"]
    experiment = load_experiment(options.file, [*options.changes, *virtual])
    return simulate_runs(experiment, names, chosen_seed(options, experiment), options.target)
