"""Snakemake's executor for Slurm, which cannot lose a job: `snakemake --executor nnlo-slurm`.

Submission, resources and job steps are inherited from snakemake-executor-plugin-slurm; what differs is in nnlo_lib.cluster and listed in
docs/develop/executors.md.
"""

import os
from pathlib import Path
from typing import Any

import snakemake_executor_plugin_slurm as upstream
from snakemake_executor_plugin_slurm import Executor as SlurmExecutor
from snakemake_executor_plugin_slurm import ExecutorSettings, common_settings
from snakemake_executor_plugin_slurm.utils import get_job_wildcards
from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo

from nnlo_lib.cluster.slurm.slurm_queue import SlurmQueue, memory_per_node, submitted_number
from nnlo_lib.cluster.slurm.slurm_site import JobRequest, SlurmSite
from nnlo_lib.cluster.submission.refusal import Refusal, classify_refusal, kind_of_known_values
from nnlo_lib.cluster.submission.shell_paths import SLURM_PATHS
from nnlo_lib.cluster.watched_executor import WatchedExecutor
from nnlo_lib.core.batch_system.scheduler_query import MISLEADING_VARIABLE

__all__ = ["Executor", "ExecutorSettings", "common_settings"]

# Upstream takes any number of a site's notice for the job's number, or fails if there are several.
upstream.validate_or_get_slurm_job_id = lambda _, output: submitted_number(output)
_upstream_command = upstream.get_submit_command


def _submit_command(job: Any, *arguments: Any, **options: Any) -> str:
    """Return upstream's sbatch command with the memory of each node; `mem_mb` is the memory of the whole job."""
    command: str = _upstream_command(job, *arguments, **options)
    memory, nodes = job.resources.get("mem_mb"), int(job.resources.get("nodes") or 1)
    per_node = f" --mem {memory_per_node(int(memory), nodes)}" if memory else ""
    return command.replace(f" --mem {memory}", per_node) if memory else command


upstream.get_submit_command = _submit_command


class Executor(WatchedExecutor, SlurmExecutor):  # type: ignore[misc]
    """Executor of the upstream plugin with the looks, tries and take-overs of WatchedExecutor."""

    _checked_requests = False

    def __post_init__(self, *arguments: Any, **options: Any) -> None:
        # For sbatch and scancel, which upstream calls.
        for variable in filter(MISLEADING_VARIABLE.fullmatch, list(os.environ)):
            del os.environ[variable]
        if problem := SLURM_PATHS.problem(self.workflow):
            raise WorkflowError(problem)
        super().__post_init__(*arguments, **options)

    def run_jobs(self, jobs: list[Any]) -> None:
        """Submit jobs; before the first, refuse a workflow with a job that this Slurm would never start."""
        if not self._checked_requests:
            self._checked_requests = True
            if problems := SlurmSite.ask().problems_of(map(_request, self._remote_jobs())):
                raise WorkflowError("; ".join(problems))
        super().run_jobs(jobs)

    def _remote_jobs(self) -> list[Any]:
        return [job for job in self.workflow.dag.needrun_jobs() if not job.is_local and not job.is_group()]

    def _report_job_error_threadsafe(self, job_info: SubmittedJobInfo, msg: str) -> None:
        # Upstream calls this method for refused submissions only.
        if message := self._after_refusal(job_info.job, msg):
            super()._report_job_error_threadsafe(job_info, message)

    def _new_queue(self) -> SlurmQueue:
        return SlurmQueue(clusters=self._submitted_job_clusters)

    def _refusal(self, text: str) -> Refusal:
        kind = kind_of_known_values(text)
        return classify_refusal(text, SlurmSite.ask().known(kind) if kind else "")

    def _submitted_numbers(self, job: Any) -> list[str] | None:
        found = self._queue.find_submitted(self.run_uuid, self._comment_of(job))
        known = {info.external_jobid for info in self.active_jobs}
        return found and [number for number in found if number not in known]

    def _submitted_info(self, job: Any, number: str) -> SubmittedJobInfo:
        log = self.slurm_logdir / f"rule_{job.name}" / get_job_wildcards(job) / f"{number}.log"
        return SubmittedJobInfo(job, number, {"slurm_logfile": log})

    def _comment_of(self, job: Any) -> str:
        """Return the comment that the upstream plugin gives a job."""
        wildcards = get_job_wildcards(job)
        return f"rule_{job.name}_wildcards_{wildcards}" if wildcards else f"rule_{job.name}"

    def _report_submission(self, info: SubmittedJobInfo) -> None:
        self._report_job_submission_threadsafe(info)

    def _log_of(self, info: SubmittedJobInfo) -> str:
        return str((info.aux or {}).get("slurm_logfile", ""))

    def _log_entry(self, log: str) -> dict[str, Any]:
        return {"slurm_logfile": Path(log)}

    def _info_class(self, job: Any, **options: Any) -> SubmittedJobInfo:
        return SubmittedJobInfo(job, **options)


def _request(job: Any) -> JobRequest:
    ask = job.resources.get
    return JobRequest(
        str(ask("slurm_partition") or ""),
        str(ask("slurm_account") or ""),
        ask("runtime") or 0,
        ask("nodes") or 1,
        ask("mem_mb") or 0,
    )
