"""Comparison of the jobs of an experiment with what this site's Slurm offers."""

import os

from nnlo_lib.cluster.slurm.slurm_queue import Command, run_command
from nnlo_lib.cluster.slurm.slurm_site import JobRequest, SlurmSite
from nnlo_lib.config import Experiment, Run
from nnlo_lib.config.resources import RunResources
from nnlo_lib.core.errors import UserError


def refuse_impossible_jobs(experiment: Experiment, ask: Command = run_command) -> str:
    """Return a sentence on what was compared.

    Args:
        experiment: the experiment.
        ask: runs a command of Slurm.

    Raises:
        UserError: Slurm does not answer, or a job would never start.
    """
    site = SlurmSite.ask(ask)
    if not site.partitions:
        raise UserError("scontrol show partition gave no answer; is this a host of a Slurm cluster?")
    requests = [_request(run) for run in (experiment, *experiment.variants.values())]
    if problems := site.problems_of(requests):
        raise UserError("; ".join(problems))
    return f"Slurm offers what the jobs ask for ({site.known('partitions')})"


def _request(run: Run) -> JobRequest:
    # profiles/slurm reads the same variables.
    resources, site = RunResources(run), RunResources(run).site
    return JobRequest(
        str(site["slurm_partition"] or os.environ.get("SBATCH_PARTITION", "")),
        str(site["slurm_account"] or os.environ.get("SBATCH_ACCOUNT", "")),
        resources.runtime_min,
        resources.nodes,
    )
