"""The behavior that Snakemake's executors of Slurm and LSF lack, as a base class to put before theirs.

It replaces the look at active jobs (`check_active_jobs`), asks the retry policy what follows the end of a job, repeats submissions,
and takes over jobs of an earlier Snakemake. The plugin still does submission, resources and job steps. docs/develop/executors.md lists
each departure.
"""

import asyncio
import threading
import time
from abc import abstractmethod
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

from nnlo_lib.batch import BatchJob
from nnlo_lib.batch.job_states import Fate, JobReport
from nnlo_lib.batch.pending_reasons import PendingExplainer
from nnlo_lib.batch.submission_line import Job, SubmissionLine
from nnlo_lib.cluster.job_watch import (
    STATUS_FILE_INTERVAL_S,
    JobWatch,
    StatusFile,
    SubmissionRecord,
    remove_old_files,
)
from nnlo_lib.cluster.submission import job_checksum, job_name
from nnlo_lib.config.paths import SUBMITTED_JOBS_FOLDER, RunPaths
from nnlo_lib.launch.attempt_recovery import all_attempts, record_lost_attempt
from nnlo_lib.state.attempt_outcome import Action, Decision, EndReport, count_without_record, decide
from nnlo_lib.state.attempts import Attempt
from nnlo_lib.state.out_of_memory import job_exit_reason

SubmittedJob = Any  # SubmittedJobInfo of Snakemake's executor interface


class WatchedExecutor(SubmissionLine):
    """Mixin of an executor plugin; the class after it in the bases is the plugin's own executor."""

    scheduler = "slurm"
    log_key: str  # of `aux` of a submitted job
    info_class: Any  # of a submitted job, in the plugin
    next_seconds_between_status_checks: float
    workflow: Any
    logger: Any
    run_uuid: str

    _clock = staticmethod(time.monotonic)

    def __post_init__(self, *arguments: Any, **options: Any) -> None:
        super().__post_init__(*arguments, **options)  # type: ignore[misc]
        self._form_line(self._new_queue())
        self._watch = JobWatch(self._queue, self._clock, self._say)
        self._pending = PendingExplainer(self._say, self._clock)
        self._tries_without_record = Counter[Job]()
        remove_old_files()

    def run_job(self, job: Job) -> None:
        """Submit a job, or take it over if a job of an earlier Snakemake does the same."""
        self._submit_in_turn(job)

    def get_job_exec_prefix(self, job: Job) -> str:
        """Return shell commands to run before the job's commands."""
        return self._next_status_file(job).prefix

    def get_job_exec_suffix(self, job: Job) -> str:
        """Return shell commands to run after the job's commands."""
        return self._next_status_file(job).suffix

    def report_job_submission(self, job_info: SubmittedJob, register_job: bool = True) -> None:
        """Record a submitted job, then report it."""
        self._accepted()
        job, number = job_info.job, job_info.external_jobid
        job_info.aux = dict(job_info.aux or {})
        file = job_info.aux.setdefault("status_file", str(self._next_status_file(job).path))
        output = next((str(path) for path in job.output), "")
        SubmissionRecord(job_checksum(job), file, self._log_of(job_info), output).write(number)
        super().report_job_submission(job_info, register_job=register_job)  # type: ignore[misc]

    async def check_active_jobs(self, active_jobs: list[SubmittedJob]) -> AsyncIterator[SubmittedJob]:
        """Yield the jobs that still run; report the ends of the others."""
        # The first call may precede __post_init__.
        self.next_seconds_between_status_checks = STATUS_FILE_INTERVAL_S
        if not active_jobs:
            return
        # In a thread, because a delay here would stop Snakemake's looks at all jobs.
        for info in await asyncio.to_thread(self._still_active, active_jobs):
            yield info

    def shutdown(self) -> None:
        """Drop the delayed submissions, then end the executor."""
        self._is_closing.set()
        super().shutdown()  # type: ignore[misc]

    def _still_active(self, jobs: Sequence[SubmittedJob]) -> list[SubmittedJob]:
        reports = self._watch.judge({info.external_jobid: _status_file(info) for info in jobs})
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
            # The setter forgets the resources, for example the memory, which depends on the attempts.
            job.attempt = job.attempt
            self._after(0, self.run_job, job)
            return True
        if step.action is Action.GIVE_UP:
            _end_tries(job)
        message = f"job {number} ended as {report.state}: {step.why}. "
        self.report_job_error(info, msg=message, aux_logs=[self._log_of(info)])  # type: ignore[attr-defined]
        return True

    def _decide(self, info: SubmittedJob, report: JobReport) -> Decision:
        job, number, ask = info.job, info.external_jobid, info.job.resources.get
        is_training = ask("on_preemption") is not None  # only trainings have this resource
        outputs = [str(path) for path in job.output] if is_training else []
        attempts = _attempts_of_ended_job(BatchJob(self.scheduler, number), outputs, int(ask("tasks") or 1))
        # Otherwise the record is of an earlier job.
        is_recorded = bool(attempts) and attempts[-1].job == number
        if is_training:
            before = self._tries_without_record[job]
            self._tries_without_record[job] = count_without_record(before, is_recorded, report)
        status = _status_file(info).command_status
        end = EndReport(report, status, int(ask("runtime") or 0), self._tries_without_record[job])
        # A job that only evaluates leaves no record beside that of the training.
        is_trained = bool(attempts) and attempts[-1].reason == "finished"
        return decide(attempts if is_recorded or is_trained else [], end)

    def _after_refusal(self, job: Job, text: str) -> str | None:
        """Submit a refused job again later, or return the error to report; `text` is what the batch system printed."""
        if (refusal := self._refused(job, text)) is None:
            return None
        if not refusal.kind.passes:
            _end_tries(job)
        return f"{job_name(job)} was not submitted: {refusal.sentence}. "

    def _submit(self, job: Job) -> None:
        try:
            super()._submit(job)
        except OSError as error:
            # The thread of a delayed submission must not end unnoticed by Snakemake.
            message = f"{job_name(job)} was not submitted: {error}. "
            self.report_job_error(self.info_class(job), msg=message)  # type: ignore[attr-defined]

    def _send(self, job: Job) -> None:
        super().run_job(job)  # type: ignore[misc]

    def _unrecorded(self, job: Job) -> list[str] | None:
        found = self._submitted_numbers(job)
        return found and [number for number in found if SubmissionRecord.read(number) is None]

    def _recorded(self, job: Job) -> list[str]:
        return SubmissionRecord.jobs_of(job_checksum(job))

    def _adopt(self, job: Job, number: str) -> None:
        if record := SubmissionRecord.read(number):
            self._say(f"job {number} ({job_name(job)}) of an earlier Snakemake still runs and is watched")
            aux = {"status_file": record.status_file, self.log_key: record.log}
            info = self.info_class(job, external_jobid=number, aux=aux)
        else:
            self._say(
                f"job {number} ({job_name(job)}) was submitted, although the answer did not say so; it is watched"
            )
            info = self._submitted_info(job, number)
        self._report_submission(info)

    def _name_of(self, job: Job) -> str:
        return job_name(job)

    def _after(self, seconds: float, function: Callable[..., None], *arguments: Any) -> None:
        """Call a function in a thread after a delay, unless the executor has ended by then."""

        def call() -> None:
            if not self._is_closing.is_set():
                function(*arguments)

        timer = threading.Timer(seconds, call)
        timer.daemon = True
        timer.start()

    def _say(self, line: str) -> None:
        self.logger.warning(f"nnlo: {line}")

    def _next_status_file(self, job: Job) -> StatusFile:
        name = f"{self.run_uuid}-{job.jobid}-{self._submissions[job]}.status"
        return StatusFile((SUBMITTED_JOBS_FOLDER / name).absolute())

    def _log_of(self, info: SubmittedJob) -> str:
        return str((info.aux or {}).get(self.log_key, ""))

    def _report_submission(self, info: SubmittedJob) -> None:
        self.report_job_submission(info)

    @abstractmethod
    def _new_queue(self) -> Any:
        """Return the queue of the batch system."""

    @abstractmethod
    def _submitted_numbers(self, job: Job) -> list[str] | None:
        """Return the numbers of all jobs that a submission of a job may have made; None without an answer."""

    @abstractmethod
    def _submitted_info(self, job: Job, number: str) -> SubmittedJob:
        """Return the record of a job that was submitted without a number in the answer."""


def _status_file(info: SubmittedJob) -> StatusFile:
    return StatusFile(Path(info.aux["status_file"]))


def _end_tries(job: Job) -> None:
    """Let Snakemake count the next error of a job as the error of its last try."""
    job.attempt = max(job.attempt, job.restart_times + 1)


def _attempts_of_ended_job(job: BatchJob, outputs: Sequence[str], ranks: int) -> list[Attempt]:
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
