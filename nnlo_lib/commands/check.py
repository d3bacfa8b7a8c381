"""`nnlo check`: validate an experiment file, try its models on one batch, and summarize its trainings."""

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from nnlo_lib.commands.experiment_file import (
    add_experiment_arguments,
    print_lsf_requests,
    print_warnings,
    read_checked_experiment,
    refuse_automatic_gpus_of_cluster,
)
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.logging_setup import get_logger

if TYPE_CHECKING:
    from nnlo_lib.config import Experiment

HELP = "validate an experiment file and try its models on one batch, without training"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for the experiment file."""
    add_experiment_arguments(parser)
    parser.add_argument(
        "--profile",
        choices=["slurm", "lsf"],
        help="slurm: also ask this site's Slurm whether it accepts the jobs, and refuse paths that it cannot use; "
        "lsf: also print what the jobs ask of LSF",
    )


def run(options: argparse.Namespace) -> None:
    """Print a summary of the trainings. Raises UserError that lists the errors of the experiment file, or jobs that cannot start."""
    from nnlo_lib.preflight.preflight import warn_about_machine
    from nnlo_lib.workflow.plan_summary import summarize_plan

    refuse_automatic_gpus_of_cluster(options)
    experiment, _ = read_checked_experiment(options)
    print(f"{options.file} is valid: {summarize_plan(experiment)}")
    print_warnings(experiment)
    if not options.profile:
        warn_about_machine(experiment)
    if options.profile == "lsf":
        print_lsf_requests(experiment)
    elif options.profile:
        _refuse_unquoted_paths(experiment, options.file)
        _refuse_what_slurm_refuses(experiment)


def _refuse_what_slurm_refuses(experiment: "Experiment") -> None:
    # Snakemake's executor plugin, which builds the submissions.
    from nnlo_lib.cluster.slurm.slurm_queue import refused_requests
    from snakemake_executor_plugin_nnlo_slurm import planned_requests

    problems = refused_requests(planned_requests(experiment), get_logger(__name__).warning)
    if problems:
        raise UserError("; ".join(problems))
    if problems is not None:
        print("Slurm accepts the jobs (`sbatch --test-only`)")


def _refuse_unquoted_paths(experiment: "Experiment", file: str) -> None:
    """Raise UserError if the executor of Slurm would refuse a path, as it does before it submits the first job."""
    from nnlo_lib.cluster.submission.shell_paths import SLURM_PATHS
    from nnlo_lib.search.study.frozen_settings import search_files
    from nnlo_lib.workflow.plan import Plan

    searched = search_files(experiment) if experiment.search else ()
    files = [
        str(Path.cwd() / "workflow" / "Snakefile"),
        file,
        *Plan.of(experiment).all_input_files,
        *searched,
    ]
    if problem := SLURM_PATHS.problem_of(os.getcwd(), files):
        raise UserError(problem)
