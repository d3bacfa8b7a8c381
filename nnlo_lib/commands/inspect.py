"""`nnlo check`, `plan`, `data` and `model`: look at an experiment without training."""

import argparse
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from nnlo_lib.commands.arguments import (
    CHANGES,
    EXPERIMENT,
    OPTIONAL_FILE,
    RUN,
    chosen_seed,
    command,
    option,
    print_lsf_requests,
    print_warnings,
    read_checked_experiment,
    read_experiment,
    refuse_automatic_gpus_of_cluster,
)
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.logging_setup import get_logger

if TYPE_CHECKING:
    from nnlo_lib.config import Experiment


def _positive(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text)):
        raise argparse.ArgumentTypeError(f"expected a positive integer, got {text!r}")
    return int(text)


@command(
    "nnlo check mine.yaml --set train.epochs=5",
    *EXPERIMENT,
    option(
        "--profile",
        "slurm: also ask this site's Slurm whether it accepts the jobs, and refuse paths that it cannot use; "
        "lsf: also print what the jobs ask of LSF",
        choices=["slurm", "lsf"],
    ),
)
def run_check(options: argparse.Namespace) -> None:
    """Validate an experiment file and try its models on one batch, without training."""
    from nnlo_lib.preflight.preflight import class_lines, warn_about_machine
    from nnlo_lib.workflow.plan import summarize_plan

    refuse_automatic_gpus_of_cluster(options)
    experiment, _ = read_checked_experiment(options)
    print("\n".join([f"{options.file} is valid: {summarize_plan(experiment)}", *class_lines(experiment)]))
    print_warnings(experiment)
    if not options.profile:
        warn_about_machine(experiment)
    if options.profile == "lsf":
        print_lsf_requests(experiment)
    elif options.profile:
        _refuse_unquoted_paths(experiment, options.file)
        _refuse_what_slurm_refuses(experiment)


def _refuse_unquoted_paths(experiment: "Experiment", file: str) -> None:
    """Raise UserError if the executor of Slurm would refuse a path, as it does before it submits the first job."""
    from nnlo_lib.cluster.submission import SLURM_PATHS
    from nnlo_lib.core.installation import SNAKEFILE
    from nnlo_lib.search.study.storage import search_files
    from nnlo_lib.workflow.plan import Plan

    searched = search_files(experiment) if experiment.search else ()
    files = [
        str(SNAKEFILE),
        file,
        *Plan.of(experiment).all_input_files,
        *searched,
    ]
    if problem := SLURM_PATHS.problem_of(os.getcwd(), files):
        raise UserError(problem)


def _refuse_what_slurm_refuses(experiment: "Experiment") -> None:
    # Snakemake's executor plugin, which builds the submissions.
    from nnlo_lib.batch.slurm_queue import refused_requests
    from snakemake_executor_plugin_nnlo_slurm import planned_requests

    problems = refused_requests(planned_requests(experiment), get_logger(__name__).warning)
    if problems:
        raise UserError("; ".join(problems))
    if problems is not None:
        print("Slurm accepts the jobs (`sbatch --test-only`)")


@command(
    "nnlo plan mine.yaml",
    *EXPERIMENT,
    option("--profile", "also print what the jobs ask of LSF", choices=["lsf"]),
)
def run_plan(options: argparse.Namespace) -> None:
    """Estimate the cost of an experiment (jobs, ranks, hours) before its jobs are submitted."""
    from nnlo_lib.workflow.cost_table import cost_table

    refuse_automatic_gpus_of_cluster(options)
    experiment, _ = read_checked_experiment(options)
    print(cost_table(experiment))
    if options.profile:
        print_lsf_requests(experiment)
    print_warnings(experiment)


@command(
    "nnlo data mine.yaml",
    OPTIONAL_FILE,
    CHANGES,
    RUN,
    option("--seed", "seed of the partition among the workers; default: the first of `seeds:`", type=int),
    option("--stores", "list all stores and fetched files below data/, and their users", action="store_true"),
    option(
        "--remove",
        "remove a store or fetched files, a folder listed by --stores; may be repeated",
        action="append",
        default=[],
        type=Path,
        metavar="FOLDER",
    ),
)
def run_data(options: argparse.Namespace) -> None:
    """Convert the data sets of an experiment and describe them, or list and remove stores."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `nnlo data FILE | head` exits without a message
    if options.stores or options.remove:
        return _stores(options)
    if options.file is None:
        options.error("pass an experiment file, --stores or --remove FOLDER")

    from nnlo_lib.workflow.data_overview import print_data_overview

    experiment, names = read_experiment(options)
    print_data_overview(experiment, names, chosen_seed(options, experiment))
    return None


def _stores(options: argparse.Namespace) -> None:
    from nnlo_lib.core.text_format import size_text
    from nnlo_lib.data.describe import remove_data_folder
    from nnlo_lib.workflow.cost_table import print_stores

    for folder in options.remove:
        print(f"removed {folder} ({size_text(remove_data_folder(folder))})")
    if options.stores:
        print_stores(read_experiment(options)[0] if options.file else None, options.file)


@command(
    "nnlo model mine.yaml --time",
    *EXPERIMENT,
    RUN,
    option(
        "--trust",
        "allow that saved torch networks (.pt, .pt2) run their code when they are read, as model.trust does",
        action="store_true",
    ),
    option(
        "--time",
        "instead of the layers, print the median time of a training iteration on one rank, with made-up samples, "
        "without data loading and exchanges; 20 iterations without a number",
        type=_positive,
        nargs="?",
        const=20,
        metavar="ITERATIONS",
    ),
)
def run_model(options: argparse.Namespace) -> None:
    """Show the layers of an experiment's models (shapes, parameters, operations), or time an iteration."""
    from nnlo_lib.workflow.data_overview import print_iteration_times, print_model_overview

    experiment, names = read_experiment(options)
    if options.time:
        print_iteration_times(experiment, names, options.time, options.trust)
        return
    print_model_overview(experiment, names, experiment.seeds[0], options.trust)
