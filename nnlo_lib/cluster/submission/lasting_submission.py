"""Submission that outlasts refusals and Snakemake itself, as a base class to put before an executor plugin's own executor."""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from nnlo_lib.cluster.snakemake_job import Job, end_tries, job_checksum, job_name
from nnlo_lib.cluster.submission.job_files import StatusFile, SubmissionRecord, remove_old_files
from nnlo_lib.cluster.submission.refusal import Refusal, RefusalKind
from nnlo_lib.cluster.submission.waiting_jobs import WaitingJobs
from nnlo_lib.config.paths import SUBMITTED_JOBS_FOLDER

SubmittedJob = Any  # SubmittedJobInfo of Snakemake's executor interface
UNKNOWN_REFUSALS = 3  # submissions of a job that end with an answer that is neither a limit nor a mistake


class LastingSubmission(ABC):
    """Mixin: submissions refused for now are repeated, and jobs of an earlier Snakemake are taken over."""

    _clock = staticmethod(time.monotonic)
    workflow: Any
    logger: Any
    run_uuid: str

    def __post_init__(self, *arguments: Any, **options: Any) -> None:
        super().__post_init__(*arguments, **options)  # type: ignore[misc]
        self._queue = self._new_queue()
        self._submissions: dict[Job, int] = {}
        self._unclear: set[Job] = set()  # jobs whose last submission may have succeeded
        self._waiting = WaitingJobs(self._submit, self._after)
        self._is_closing = threading.Event()
        remove_old_files()

    def run_job(self, job: Job) -> None:
        """Submit a job, or take it over if a job of an earlier Snakemake does the same."""
        self._waiting.submit(job)

    def get_job_exec_prefix(self, job: Job) -> str:
        """Return shell commands to run before the job's commands."""
        return self._next_status_file(job).prefix

    def get_job_exec_suffix(self, job: Job) -> str:
        """Return shell commands to run after the job's commands."""
        return self._next_status_file(job).suffix

    def report_job_submission(self, job_info: SubmittedJob, register_job: bool = True) -> None:
        """Record a submitted job, then report it."""
        self._waiting.accepted()
        job, number = job_info.job, job_info.external_jobid
        job_info.aux = dict(job_info.aux or {})
        job_info.aux.setdefault("status_file", str(self._next_status_file(job).path))
        SubmissionRecord(job_checksum(job), job_info.aux["status_file"], self._log_of(job_info)).write(number)
        super().report_job_submission(job_info, register_job=register_job)  # type: ignore[misc]

    def shutdown(self) -> None:
        """Drop the delayed submissions, then end the executor."""
        self._is_closing.set()
        super().shutdown()  # type: ignore[misc]

    def _after_refusal(self, job: Job, text: str) -> str | None:
        """Submit a refused job again later, or return the error to report.

        Args:
            job: the job.
            text: what the command of the batch system printed.
        """
        refusal = self._refusal(text)
        if refusal.kind is RefusalKind.UNKNOWN or refusal.may_be_submitted:
            self._unclear.add(job)
        passes = refusal.kind is RefusalKind.TRANSIENT or (
            refusal.kind is RefusalKind.UNKNOWN and self._submissions.get(job, 0) < UNKNOWN_REFUSALS
        )
        if passes and not self._is_closing.is_set():
            if not self._adopt_unreported(job):
                self._submit_later(job, refusal.sentence)
            return None
        if refusal.kind is RefusalKind.UNKNOWN and self._adopt_unreported(job):
            return None
        if refusal.kind is not RefusalKind.TRANSIENT:
            end_tries(job)
        return f"{job_name(job)} was not submitted: {refusal.sentence}. "

    def _submit(self, job: Job) -> None:
        try:
            if not (self._adopt_unreported(job) or self._take_over(job)):
                if job in self._unclear:
                    self._submit_later(
                        job, "the batch system does not say whether it accepted the last submission"
                    )
                    return
                self._submissions[job] = self._submissions.get(job, 0) + 1
                super().run_job(job)  # type: ignore[misc]
        except OSError as error:
            # The thread of a delayed submission must not end unnoticed by Snakemake.
            message = f"{job_name(job)} was not submitted: {error}. "
            self.report_job_error(self._info_class(job), msg=message)  # type: ignore[attr-defined]

    def _adopt_unreported(self, job: Job) -> bool:
        """Watch a job whose submission succeeded although its answer said nothing of it; return False if there is none.

        The submission stays unclear while the batch system does not answer.
        """
        if job not in self._unclear:
            return False
        if (numbers := self._submitted_numbers(job)) is None:
            return False
        report = self._queue.look(numbers)
        if not report.is_complete:
            return False
        self._unclear.discard(job)
        active = [
            number for number in numbers if number in report.jobs and report.jobs[number].fate.is_active
        ]
        if active:
            self._say(
                f"job {active[-1]} ({job_name(job)}) was submitted, although the answer did not say so; it is watched"
            )
            self._report_submission(self._submitted_info(job, active[-1]))
        return bool(active)

    def _take_over(self, job: Job) -> bool:
        """Watch a job that an earlier Snakemake left in the queue; return False if there is none that does the same."""
        if job.is_group() or job in self._submissions:
            return False
        for number, record in SubmissionRecord.of_task(job_checksum(job)):
            answer = self._queue.look([number])
            if number not in answer.jobs and not answer.is_complete:
                self._submit_later(job, f"the batch system does not say whether job {number} still runs")
                return True
            if number in answer.jobs and answer.jobs[number].fate.is_active:
                self._say(f"job {number} ({job_name(job)}) of an earlier Snakemake still runs and is watched")
                aux = {"status_file": record.status_file, **self._log_entry(record.log)}
                self._report_submission(self._info_class(job, external_jobid=number, aux=aux))
                return True
        return False

    def _submit_later(self, job: Job, reason: str) -> None:
        delay = self._waiting.add_refused(job)
        self._say(f"submissions wait {delay:g} s or until a job ends, {job_name(job)} first: {reason}")

    def _next_status_file(self, job: Job) -> StatusFile:
        name = f"{self.run_uuid}-{job.jobid}-{self._submissions.get(job, 0)}.status"
        return StatusFile((SUBMITTED_JOBS_FOLDER / name).absolute())

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

    def _report_submission(self, info: SubmittedJob) -> None:
        self.report_job_submission(info)

    @abstractmethod
    def _new_queue(self) -> Any:
        """Return the queue of the batch system."""

    @abstractmethod
    def _submitted_numbers(self, job: Job) -> Sequence[str] | None:
        """Return the numbers of all jobs, not watched yet, with the name of a job; None without an answer."""

    @abstractmethod
    def _submitted_info(self, job: Job, number: str) -> SubmittedJob:
        """Return the record of a job that was submitted without a number in the answer."""

    @abstractmethod
    def _refusal(self, text: str) -> Refusal:
        """Classify what the submission command printed."""

    @abstractmethod
    def _log_of(self, info: SubmittedJob) -> str:
        """Return the path of a job's log."""

    @abstractmethod
    def _log_entry(self, log: str) -> dict[str, Any]:
        """Return what a submitted job's `aux` says of its log."""

    @abstractmethod
    def _info_class(self, job: Job, **options: Any) -> SubmittedJob:
        """Return the record of a submitted job, in the plugin's class."""


def status_file_of(info: SubmittedJob) -> StatusFile:
    """Return the status file of a submitted job."""
    return StatusFile(Path(info.aux["status_file"]))
