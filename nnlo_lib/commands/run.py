"""`nnlo all`, `run`, `search` and `simulate`: train the whole experiment by Snakemake, or parts of it without Snakemake."""

import argparse
import shlex

from nnlo_lib.commands.arguments import (
    EXPERIMENT,
    LAUNCHER,
    OPTIONAL_FILE,
    RUN,
    SEED,
    chosen_seed,
    command,
    option,
    read_checked_experiment,
)


@command(
    "nnlo all mine.yaml --profile slurm",
    OPTIONAL_FILE,
    option(
        "--profile",
        "local, slurm, lsf, or the folder of a profile of Snakemake; default: %(default)s",
        default="local",
    ),
    option(
        "--snakemake",
        "more options of snakemake, quoted, such as --snakemake='--jobs 20 --retries 5'",
        type=shlex.split,
        default=[],
        metavar="OPTIONS",
    ),
)
def run_all(options: argparse.Namespace) -> int:
    """Run a whole experiment, from its data to its page, with a line for each job."""
    from nnlo_lib.core.errors import UserError
    from nnlo_lib.experiment.load import load_experiment
    from nnlo_lib.workflow.whole_experiment import EXPERIMENT_FILE, run_experiment

    if options.file is None:
        raise UserError(
            f"FILE: missing; name the experiment file, such as the one of nnlo init: nnlo all {EXPERIMENT_FILE}"
        )
    return run_experiment(load_experiment(options.file), options.file, options.profile, options.snakemake)


@command(
    "nnlo run mine.yaml --run four --seed 2",
    *EXPERIMENT,
    option("--run", "name of the run in `runs:`; default: the first run"),
    SEED,
    option("--fold", "number of the fold, from 0; default: 0 if the experiment has folds", type=int),
    option(
        "--all",
        "train all runs, seeds and folds one after the other, with a line for each; then write the page and print the comparison",
        action="store_true",
    ),
    LAUNCHER,
)
def run_run(options: argparse.Namespace) -> int:
    """Run one training of an experiment with MPI, without Snakemake."""
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


@command(
    "nnlo search mine.yaml --set search.trials=30",
    *EXPERIMENT,
    LAUNCHER,
    option(
        "--replay",
        "recompute each decision of a previous search from the results then known, without training, "
        "and print the decisions that differ",
        action="store_true",
    ),
    option(
        "--executor",
        "local: processes on this machine; mpi: one MPI allocation, in which rank 0 coordinates and rank groups train; "
        "submitit: Slurm jobs; default: %(default)s",
        default="local",
        choices=["local", "mpi", "submitit"],
    ),
    option(
        "--ranks",
        "number of ranks for --executor mpi; default: SLURM_NTASKS, else 1 + search.parallel * parallel.ranks",
        type=int,
    ),
)
def run_search(options: argparse.Namespace) -> int:
    """Run the hyperparameter search of an experiment without Snakemake."""
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


@command(
    "nnlo simulate mine.yaml --target 0.9",
    *EXPERIMENT,
    RUN,
    SEED,
    option(
        "--target",
        "target value of the first validation metric; default: the best value that all runs reach",
        type=float,
    ),
)
def run_simulate(options: argparse.Namespace) -> int:
    """Train on the virtual machine of parallel.simulation; print virtual time and bytes to a target metric."""
    from nnlo_lib.experiment.load import load_experiment
    from nnlo_lib.workflow.single_run import simulate_runs

    given, names = read_checked_experiment(options)
    # Another name keeps the results of real trainings of the same experiment. The experiment is loaded twice,
    # because its name must be known first.
    virtual = [f"name={given.name}-simulated", "parallel.transport=simulated"]
    experiment = load_experiment(options.file, [*options.changes, *virtual])
    return simulate_runs(experiment, names, chosen_seed(options, experiment), options.target)
