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

if TYPE_CHECKING:
    from nnlo_lib.config import Experiment

HELP = "validate an experiment file and try its models on one batch, without training"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for the experiment file."""
    add_experiment_arguments(parser)
    parser.add_argument(
        "--profile",
        choices=["slurm", "lsf"],
        help="slurm: also compare the jobs with what this site's Slurm offers, and refuse paths that it cannot use; "
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
    warn_about_machine(experiment)
    if options.profile == "lsf":
        print_lsf_requests(experiment)
    elif options.profile:
        from nnlo_lib.cluster.slurm.site_check import refuse_impossible_jobs

        _refuse_unquoted_paths(experiment, options.file)
        print(refuse_impossible_jobs(experiment))


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
