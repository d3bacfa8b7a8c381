"""Snakemake's executor for Slurm, which cannot lose a job: `snakemake --executor nnlo-slurm`.

Submission, resources and job steps are inherited from snakemake-executor-plugin-slurm; what differs is in nnlo_lib.cluster and listed in
docs/develop/executors.md.
"""

import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import snakemake_executor_plugin_slurm as upstream
from snakemake_executor_plugin_slurm import Executor as SlurmExecutor
from snakemake_executor_plugin_slurm import ExecutorSettings, common_settings
from snakemake_executor_plugin_slurm.utils import get_job_wildcards
from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo

from nnlo_lib.batch.refusals import classify_refusal
from nnlo_lib.batch.slurm_queue import SlurmQueue, memory_per_node, refused_requests, submitted_number
from nnlo_lib.batch.surroundings import leave_surrounding_job, sentence_about_variables
from nnlo_lib.cluster.submission import SLURM_PATHS, job_name, read_profile, refuse_workflow, resource_value
from nnlo_lib.cluster.watched_executor import WatchedExecutor
from nnlo_lib.config import Experiment
from nnlo_lib.config.experiment import RunResources
from nnlo_lib.core.errors import UserError

__all__ = ["Executor", "ExecutorSettings", "common_settings", "planned_requests"]

PROFILE = Path("slurm/config.yaml")  # where `snakemake --profile slurm` finds it, from the root of a clone
SITE_OPTIONS = (("-A", "slurm_account"), ("-p", "slurm_partition"))
UNKNOWN_RESOURCE = "<TBD>"  # of Snakemake, while the inputs of a job do not exist

# Upstream takes any number of a site's notice for the job's number, or fails if there are several.
upstream.validate_or_get_slurm_job_id = lambda _, output: submitted_number(output)
# Upstream removes SLURM_CONF, too, by which the cluster is found.
upstream.delete_slurm_environment = leave_surrounding_job
_upstream_command = upstream.get_submit_command


def _submit_command(job: Any, *arguments: Any, **options: Any) -> str:
    """Return upstream's sbatch command with the memory of each node; `mem_mb` is the memory of the whole job."""
    if job.resources.get("tasks") == 1:
        # The profile sets the launcher of all jobs of a rule as `mpi`, which upstream refuses for one task.
        kept = _Resources({key: value for key, value in job.resources.items() if key != "mpi"})
        job = SimpleNamespace(threads=job.threads, resources=kept)
    command: str = _upstream_command(job, *arguments, **options)
    if job.resources.get("gpu") and not job.resources.get("mpi"):
        command += f" --ntasks={job.resources.get('tasks') or 1}"  # upstream leaves it to --ntasks-per-gpu
    memory, nodes = job.resources.get("mem_mb"), int(job.resources.get("nodes") or 1)
    per_node = f" --mem {memory_per_node(int(memory), nodes)}" if memory else ""
    return command.replace(f" --mem {memory}", per_node) if memory else command


upstream.get_submit_command = _submit_command


class Executor(WatchedExecutor, SlurmExecutor):  # type: ignore[misc]
    """Executor of the upstream plugin with the looks, tries and take-overs of WatchedExecutor."""

    log_key, info_class = "slurm_logfile", SubmittedJobInfo

    def __post_init__(self, *arguments: Any, **options: Any) -> None:
        leave_surrounding_job()  # for sbatch and scancel, which upstream calls
        refuse_workflow(SLURM_PATHS.problem(self.workflow))
        super().__post_init__(*arguments, **options)
        try:
            refuse_workflow("; ".join(refused_requests(self._requests(), self._say) or ()))
        except UserError as error:
            refuse_workflow(str(error))
        if sentence := sentence_about_variables(os.environ):
            self._say(sentence)

    def _requests(self) -> dict[str, str]:
        """Return the distinct requests of the workflow's jobs, each with the name of its first job."""
        found: dict[str, str] = {}
        accounts: dict[Any, str] = {}  # upstream calls sacctmgr for each
        for job in self.workflow.dag.needrun_jobs():
            # The run of a training that a search has yet to choose is unknown, and its time limit with it.
            if job.is_local or job.is_group() or str(job.resources.get("runtime")) == UNKNOWN_RESOURCE:
                continue
            account = job.resources.get("slurm_account")
            try:
                if account not in accounts:
                    accounts[account] = next(self.get_account_arg(job))
            except WorkflowError as error:
                raise UserError(f"{job_name(job)}: {classify_refusal(str(error)).sentence}") from None
            command = _request(
                job, accounts[account], self.get_partition_arg(job), self.workflow.executor_settings
            )
            found.setdefault(command, job_name(job))
        return found

    def _report_job_error_threadsafe(self, job_info: SubmittedJobInfo, msg: str) -> None:
        # Upstream calls this method for refused submissions only.
        if message := self._after_refusal(job_info.job, msg):
            super()._report_job_error_threadsafe(job_info, message)

    def _new_queue(self) -> SlurmQueue:
        return SlurmQueue(clusters=self._submitted_job_clusters)

    def _submitted_numbers(self, job: Any) -> list[str] | None:
        wildcards = get_job_wildcards(job)  # as in upstream's comment
        comment = f"rule_{job.name}_wildcards_{wildcards}" if wildcards else f"rule_{job.name}"
        queue: SlurmQueue = self._queue
        return queue.find_submitted(self.run_uuid, comment, self._logs_of(job))

    def _submitted_info(self, job: Any, number: str) -> SubmittedJobInfo:
        return SubmittedJobInfo(job, number, {"slurm_logfile": self._logs_of(job) / f"{number}.log"})

    def _logs_of(self, job: Any) -> Path:
        """Return the folder into which the upstream plugin writes the logs of a job."""
        return Path(self.slurm_logdir, f"rule_{job.name}", get_job_wildcards(job))

    def _report_submission(self, info: SubmittedJobInfo) -> None:
        self._report_job_submission_threadsafe(info)


def _request(job: Any, account: str, partition: str, settings: Any) -> str:
    """Return the command of sbatch for a job, with upstream's options and without what differs between equal requests."""
    same = {"run_uuid": "nnlo", "comment_str": "nnlo", "slurm_logfile": os.devnull, "workdir": None}
    command = _submit_command(job, same | {"account": account, "partition": partition}, settings=settings)
    return f"{command}{upstream.set_gres_string(job)}"


class _Resources(dict[str, Any]):
    """Resources of a planned job, read as upstream reads those of Snakemake's jobs."""

    __getattr__ = dict.__getitem__


def planned_requests(experiment: Experiment) -> dict[str, str]:
    """Return the distinct requests of the jobs of `snakemake --profile slurm`, each with the name of its first job."""
    profile = read_profile(PROFILE)
    names = ("requeue", "no_requeue", "qos", "reservation")  # of upstream's settings, those that sbatch gets
    settings = {name: profile.get(f"nnlo-slurm-{name.replace('_', '-')}") for name in names}
    found: dict[str, str] = {}
    for name, rule, threads, resources in _planned_jobs(experiment):
        # An empty partition or account leaves the value to the profile.
        own = (profile.get("default-resources") or {}) | {k: v for k, v in resources.items() if v != ""}
        own |= (profile.get("set-resources") or {}).get(rule) or {}
        values = {key: resource_value(value) for key, value in own.items()}
        known = _Resources({key: value for key, value in values.items() if value not in (None, "")})
        job = SimpleNamespace(threads=threads, resources=known)
        # Without these options, sbatch reads the variables that the profile reads.
        account, partition = (
            f"{option} {shlex.quote(str(known[key]))}" if key in known else "" for option, key in SITE_OPTIONS
        )
        found.setdefault(_request(job, account, partition, SimpleNamespace(**settings)), name)
    return found


def _planned_jobs(experiment: Experiment) -> Iterator[tuple[str, str, int, dict[str, Any]]]:
    """Yield name, rule, threads and resources of one job of each kind, as the rules give them to the first attempt."""
    if experiment.search:
        needs = RunResources(experiment)
        yield "search, fold tasks", "fold_task", needs.cores, _resources(needs)
    for name, run in {} if experiment.search and not experiment.runs else experiment.variants.items():
        needs = RunResources(run)
        yield f"run {name}", "train", needs.cores, _resources(needs) | {"mpi": "mpiexec"}


def _resources(needs: RunResources) -> dict[str, Any]:
    ranks = {"tasks": needs.processes, "nodes": needs.nodes}
    own = {
        "cpus_per_task": needs.threads_per_process,
        "runtime": needs.runtime_min,
        "mem_mb": needs.memory_mb,
    }
    return {**needs.site, **ranks, **own}
