"""Snakemake's executor for LSF, which cannot lose a job: `snakemake --executor nnlo-lsf`.

Submission and resources are inherited from snakemake-executor-plugin-lsf; what differs is in nnlo_lib.cluster and listed in
docs/develop/executors.md.
"""

import dataclasses
import os
import re
import shlex
from typing import Any

from snakemake_executor_plugin_lsf import Executor as LsfExecutor
from snakemake_executor_plugin_lsf import common_settings as lsf_settings
from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo

from nnlo_lib.batch.lsf_queue import LsfQueue, site_parameters
from nnlo_lib.batch.refusals import UNKNOWN_QUEUE, Refusal, RefusalKind, classify_refusal
from nnlo_lib.cluster.lsf_request import DEFAULT_GPU_OPTIONS, LsfRequest, slots_per_host
from nnlo_lib.cluster.submission import LSF_PATHS, refuse_workflow
from nnlo_lib.cluster.watched_executor import WatchedExecutor

__all__ = ["Executor", "common_settings"]

# A look finds a job that LSF does not list yet in one of the next looks.
common_settings = dataclasses.replace(lsf_settings, init_seconds_before_status_checks=2)
NO_NUMBER = "bsub printed no job number"


class Executor(WatchedExecutor, LsfExecutor):  # type: ignore[misc]
    """Executor of the upstream plugin with the looks, tries and take-overs of WatchedExecutor."""

    log_key, info_class = "lsf_logfile", SubmittedJobInfo

    def __post_init__(self) -> None:
        refuse_workflow(LSF_PATHS.problem(self.workflow))
        super().__post_init__()
        # Without a limit, bsub itself waits until LSF accepts the job, and Snakemake waits for bsub.
        os.environ.setdefault("LSB_NTRIES", "1")

    @staticmethod
    def get_lsf_config() -> dict[str, str]:
        """Return LSF's parameters; upstream ends with a KeyError on a site where users cannot read all of them."""
        return site_parameters()

    def _send(self, job: Any) -> None:
        # A refusal, which ends Snakemake in the upstream plugin, delays or ends this job.
        try:
            super()._send(job)
        except WorkflowError as error:
            self._refuse(job, str(error))
        except TypeError as error:
            if "subscriptable" not in str(error):  # upstream reads the number with `re.search(...)[1]`
                raise
            self._refuse(job, NO_NUMBER)

    def get_project_arg(self, job: Any) -> str:
        """Return bsub's option for the project, which the upstream plugin does not quote."""
        option, _, project = super().get_project_arg(job).partition("-P ")
        return f"{option}-P {shlex.quote(project)}" if project else option

    def get_queue_arg(self, job: Any) -> str:
        """Return bsub's options for the queue and for the GPUs, which the upstream plugin does not know."""
        return f"{super().get_queue_arg(job)}{self._gpu_arg(job)}"

    def get_span(self, job: Any) -> str:
        """Return bsub's span; the upstream plugin ignores the number of nodes."""
        ask = job.resources.get
        if not ask("mpi") or ask("span") or int(ask("nodes") or 1) == 1:
            return str(super().get_span(job))
        return f"ptile={slots_per_host(self.get_cpus(job), int(ask('tasks') or 1), int(ask('nodes')), 0)}"

    def _gpu_arg(self, job: Any) -> str:
        ask = job.resources.get
        # A user's own `-gpu` in the profile stays as it is.
        if not ask("gpu") or "-gpu" in str(ask("lsf_extra", "")).split():
            return ""
        _, _, ptile = self.get_span(job).partition("ptile=")
        options = str(ask("lsf_gpu") or DEFAULT_GPU_OPTIONS)
        request = LsfRequest(
            self.get_cpus(job), int(ptile) if ptile.isdigit() else 0, int(ask("gpu")), options
        )
        return f" {request.gpu_words}"

    def cancel_jobs(self, active_jobs: list[SubmittedJobInfo]) -> None:
        """Cancel jobs; a job that has ended meanwhile is no error."""
        if active_jobs:
            self._queue.cancel(*(str(info.external_jobid) for info in active_jobs))

    def _refuse(self, job: Any, text: str) -> None:
        if message := self._after_refusal(job, text):
            self.report_job_error(SubmittedJobInfo(job), msg=message)

    def _new_queue(self) -> LsfQueue:
        return LsfQueue()

    def _classify(self, text: str) -> Refusal:
        if text == NO_NUMBER:
            return Refusal(RefusalKind.LOST, text)
        return classify_refusal(text, self._queue.known_queues() if re.search(UNKNOWN_QUEUE, text) else "")

    def _submitted_numbers(self, job: Any) -> list[str] | None:
        queue: LsfQueue = self._queue
        return queue.find_submitted(_job_name(job, self.run_uuid))

    def _submitted_info(self, job: Any, number: str) -> SubmittedJobInfo:
        return SubmittedJobInfo(job, number, {})


def _job_name(job: Any, run: str) -> str:
    """Return the name that the upstream plugin gives a job in LSF."""
    if job.is_group():
        return ""
    wildcards = ",".join(f"{key}={value.replace('/', '___')}" for key, value in job.wildcards_dict.items())
    return f"Snakemake_rule_{job.name}{':' if wildcards else ''}{wildcards}___({run})"
