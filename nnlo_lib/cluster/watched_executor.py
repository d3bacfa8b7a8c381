"""The behavior that Snakemake's executors of Slurm and LSF lack, as a base class to put before theirs.

It replaces the look at active jobs (`check_active_jobs`) and asks the retry policy what follows the end of a job;
LastingSubmission repeats submissions and takes over jobs of an earlier Snakemake. The plugin still does submission, resources
and job steps. docs/develop/executors.md lists each departure.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from nnlo_lib.batch import BatchJob
from nnlo_lib.batch.job_states import Fate, JobReport
from nnlo_lib.batch.pending_reasons import PendingExplainer
from nnlo_lib.batch.submission_line import Job
from nnlo_lib.cluster.job_watch import STATUS_FILE_INTERVAL_S, JobWatch
from nnlo_lib.cluster.submission import (
    LastingSubmission,
    SubmittedJob,
    compute_resources_again,
    end_tries,
    is_training,
    job_name,
    status_file_of,
)
from nnlo_lib.config.paths import RunPaths
from nnlo_lib.launch.attempt_recovery import all_attempts, record_lost_attempt
from nnlo_lib.state.attempt_outcome import Action, Decision, EndReport, count_without_record, decide
from nnlo_lib.state.attempts import Attempt
from nnlo_lib.state.out_of_memory import job_exit_reason


class WatchedExecutor(LastingSubmission):
    """Mixin of an executor plugin; the class after it in the bases is the plugin's own executor."""

    scheduler = "slurm"
    next_seconds_between_status_checks: float

    def __post_init__(self, *arguments: Any, **options: Any) -> None:
        super().__post_init__(*arguments, **options)
        self._watch = JobWatch(self._queue, self._clock, self._say)
        self._pending = PendingExplainer(self._say, self._clock)
        self._tries_without_record: dict[Job, int] = {}

    async def check_active_jobs(self, active_jobs: list[SubmittedJob]) -> AsyncIterator[SubmittedJob]:
        """Yield the jobs that still run; report the ends of the others."""
        # The first call may precede __post_init__.
        self.next_seconds_between_status_checks = STATUS_FILE_INTERVAL_S
        if not active_jobs:
            return
        # In a thread, because a delay here would stop Snakemake's looks at all jobs.
        for info in await asyncio.to_thread(self._still_active, active_jobs):
            yield info

    def _still_active(self, jobs: Sequence[SubmittedJob]) -> list[SubmittedJob]:
        reports = self._watch.judge({info.external_jobid: status_file_of(info) for info in jobs})
        self._pending.explain(reports, {info.external_jobid: job_name(info.job) for info in jobs})
        judged = [(info, reports[info.external_jobid]) for info in jobs]
        active = [
            info for info, report in judged if report.fate.is_active or not self._has_ended(info, report)
        ]
        if len(active) < len(jobs):
            self._after(0, self._submit_after_end)
        return active

    def _has_ended(self, info: SubmittedJob, report: JobReport) -> bool:
        """Report the end of a job to Snakemake; return False if the job must be judged again later."""
        try:
            if report.fate is not Fate.DONE:
                return self._follow(info, report)
            self.report_job_success(info)  # type: ignore[attr-defined]
            if not getattr(self.workflow.executor_settings, "keep_successful_logs", True):
                Path(self._log_of(info)).unlink(missing_ok=True)
            return True
        except OSError as error:
            self._say(
                f"job {info.external_jobid} ({job_name(info.job)}) ended; cannot read its files: {error}"
            )
            return False

    def _follow(self, info: SubmittedJob, report: JobReport) -> bool:
        """Submit a job that did not succeed again, or report the error; return False if neither is possible now."""
        job, number = info.job, info.external_jobid
        step = self._decide(info, report)
        if step.action is Action.RESUBMIT:
            # A job that the batch system revives would train beside the new one.
            if not self._queue.cancel(number):
                return False
            self._say(f"job {number} ({job_name(job)}): {step.why}; submitted again")
            compute_resources_again(job)
            self._after(0, self.run_job, job)
            return True
        if step.action is Action.GIVE_UP:
            end_tries(job)
        message = f"job {number} ended as {report.state}: {step.why}. "
        self.report_job_error(info, msg=message, aux_logs=[self._log_of(info)])  # type: ignore[attr-defined]
        return True

    def _decide(self, info: SubmittedJob, report: JobReport) -> Decision:
        job, number, ask = info.job, info.external_jobid, info.job.resources.get
        outputs = [str(path) for path in job.output] if is_training(job) else []
        attempts = attempts_of_ended_job(BatchJob(self.scheduler, number), outputs, int(ask("tasks") or 1))
        # Otherwise the record is of an earlier job.
        is_recorded = bool(attempts) and attempts[-1].job == number
        if is_training(job):
            before = self._tries_without_record.get(job, 0)
            self._tries_without_record[job] = count_without_record(before, is_recorded, report)
        status, tries = status_file_of(info).command_status, self._tries_without_record.get(job, 0)
        end = EndReport(report, status, int(ask("runtime") or 0), tries)
        # A job that only evaluates leaves no record beside that of the training.
        is_trained = bool(attempts) and attempts[-1].reason == "finished"
        return decide(attempts if is_recorded or is_trained else [], end)


def attempts_of_ended_job(job: BatchJob, outputs: Sequence[str], ranks: int) -> list[Attempt]:
    """Return the attempts of a training; a job that ran out of memory before its first line gets one.

    `state/` is beside the output files. Raises OSError if the record cannot be read or written.
    """
    if not outputs:
        return []
    state = RunPaths(min(Path(output).parent for output in outputs)).state.folder
    attempts = all_attempts(state, ranks, ended=True)
    if attempts and attempts[-1].job == job.job_id:
        return attempts
    if job_exit_reason(job) == "out of memory" and record_lost_attempt(state, job, "out of memory", ranks):
        return all_attempts(state, ranks, ended=True)
    return attempts
