"""Snakemake's executor for Slurm, which cannot lose a job: `snakemake --executor nnlo-slurm`.

Submission, resources and job steps are inherited from snakemake-executor-plugin-slurm; what differs is in nnlo_lib.cluster and listed in
docs/develop/executors.md.
"""

from pathlib import Path
from typing import Any

from snakemake_executor_plugin_slurm import Executor as SlurmExecutor
from snakemake_executor_plugin_slurm import ExecutorSettings, common_settings
from snakemake_executor_plugin_slurm.utils import get_job_wildcards
from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo

from nnlo_lib.cluster.slurm.slurm_queue import SlurmQueue
from nnlo_lib.cluster.slurm.slurm_site import JobRequest, SlurmSite
from nnlo_lib.cluster.submission.refusal import Refusal, classify_refusal, kind_of_known_values
from nnlo_lib.cluster.submission.shell_paths import SLURM_PATHS
from nnlo_lib.cluster.watched_executor import WatchedExecutor

__all__ = ["Executor", "ExecutorSettings", "common_settings"]


class Executor(WatchedExecutor, SlurmExecutor):  # type: ignore[misc]
    """Executor of the upstream plugin with the looks, tries and take-overs of WatchedExecutor."""

    _checked_requests = False

    def __post_init__(self, *arguments: Any, **options: Any) -> None:
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

    def _adopt_unreported(self, job: Any) -> bool:
        wildcards = get_job_wildcards(job)
        comment = f"rule_{job.name}_wildcards_{wildcards}" if wildcards else f"rule_{job.name}"
        known = {info.external_jobid for info in self.active_jobs}
        for number in self._queue.find_submitted(self.run_uuid, comment):
            if number not in known and self._is_active(number):
                log = self.slurm_logdir / f"rule_{job.name}" / wildcards / f"{number}.log"
                self._report_submission(SubmittedJobInfo(job, number, {"slurm_logfile": log}))
                return True
        return False

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
    )
