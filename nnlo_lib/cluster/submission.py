"""Submission of Snakemake's jobs that outlasts refusals and Snakemake itself: a base class to put before a plugin's executor.

After a refusal for now (a limit or an outage concerns all jobs), jobs wait. A new Snakemake recognizes jobs of an earlier one
by a checksum of what they do. Paths that Snakemake and its plugins do not quote completely are refused.
"""

import ast
import hashlib
import json
import re
import sys
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from nnlo_lib.batch.refusals import RefusalKind
from nnlo_lib.batch.submission_line import Job, SubmissionLine
from nnlo_lib.cluster.job_watch import StatusFile, SubmissionRecord, remove_old_files
from nnlo_lib.config.paths import SUBMITTED_JOBS_FOLDER
from nnlo_lib.core.errors import EXIT_USER_ERROR, UserError
from nnlo_lib.core.shadowed_packages import shadowed_packages

SubmittedJob = Any  # SubmittedJobInfo of Snakemake's executor interface
# No plugin quotes the path of the Python interpreter, and the plugin for LSF does not quote the working folder.
UNQUOTED = r"[\w@%+=:,./-]"


class LastingSubmission(SubmissionLine):
    """Mixin: submissions refused for now are repeated, and jobs of an earlier Snakemake are taken over."""

    log_key: str  # of `aux` of a submitted job
    info_class: Any  # of a submitted job, in the plugin

    _clock = staticmethod(time.monotonic)
    workflow: Any
    logger: Any
    run_uuid: str

    def __post_init__(self, *arguments: Any, **options: Any) -> None:
        super().__post_init__(*arguments, **options)  # type: ignore[misc]
        self._form_line(self._new_queue())
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
        job_info.aux.setdefault("status_file", str(self._next_status_file(job).path))
        output = next((str(path) for path in job.output), "")
        SubmissionRecord(
            job_checksum(job), job_info.aux["status_file"], self._log_of(job_info), output
        ).write(number)
        super().report_job_submission(job_info, register_job=register_job)  # type: ignore[misc]

    def shutdown(self) -> None:
        """Drop the delayed submissions, then end the executor."""
        self._is_closing.set()
        super().shutdown()  # type: ignore[misc]

    def _after_refusal(self, job: Job, text: str) -> str | None:
        """Submit a refused job again later, or return the error to report; `text` is what the batch system printed."""
        if (refusal := self._refused(job, text)) is None:
            return None
        if refusal.kind is not RefusalKind.TRANSIENT:
            end_tries(job)
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

    def _next_status_file(self, job: Job) -> StatusFile:
        name = f"{self.run_uuid}-{job.jobid}-{self._submissions[job]}.status"
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
    def _submitted_numbers(self, job: Job) -> list[str] | None:
        """Return the numbers of all jobs that a submission of a job may have made; None without an answer."""

    @abstractmethod
    def _submitted_info(self, job: Job, number: str) -> SubmittedJob:
        """Return the record of a job that was submitted without a number in the answer."""

    def _log_of(self, info: SubmittedJob) -> str:
        return str((info.aux or {}).get(self.log_key, ""))


def status_file_of(info: SubmittedJob) -> StatusFile:
    """Return the status file of a submitted job."""
    return StatusFile(Path(info.aux["status_file"]))


def job_name(job: Job) -> str:
    """Return the rule and the wildcards of a job, as a user knows the job."""
    return str(job.name) if job.is_group() else " ".join([str(job.rule.name), *map(str, list(job.wildcards))])


def job_checksum(job: Job) -> str:
    """Return a checksum of rule, wildcards, parameters, and names and times of the inputs; empty for a group of jobs."""
    if job.is_group():
        return ""
    parts = {
        "rule": str(job.rule.name),
        "wildcards": [str(value) for value in job.wildcards],
        "params": [str(value) for value in job.params],
        "inputs": [(str(path), _modified(Path(str(path)))) for path in job.input],
    }
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _modified(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def end_tries(job: Job) -> None:
    """Let Snakemake count the next error of a job as the error of its last try."""
    job.attempt = max(job.attempt, job.restart_times + 1)


def compute_resources_again(job: Job) -> None:
    """Forget the resources of a job, for example its memory, which depends on its attempts."""
    job.attempt = job.attempt  # the setter does it


def is_training(job: Job) -> bool:
    """Return True if the job trains; only trainings have this resource."""
    return job.resources.get("on_preemption") is not None


def read_profile(path: Path) -> dict[str, Any]:
    """Return the settings of a profile, or none if there is no such file. Raises UserError if it is no YAML."""
    if not path.exists():
        return {}
    try:
        settings = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UserError(f"{path}: cannot read the profile ({error}); repair it") from None
    return settings if isinstance(settings, dict) else {}


def resource_value(value: Any) -> Any:
    """Return a resource of a profile as Snakemake evaluates it.

    Return None if the value depends on the job or the environment, or is text with a unit, such as `2h` or `4GB`.
    """
    if not isinstance(value, str):
        return value
    try:
        return ast.literal_eval(value)
    except (SyntaxError, ValueError):
        # A name is no expression for Snakemake, but text.
        return None if re.search(r"^\?|^[\d.]+ ?\w+$|\b(attempt|input|threads|wildcards)\b", value) else value


def refuse_workflow(problem: str | None) -> None:
    """Exit with a sentence and status 2 if there is a problem, before the first job and `onstart`.

    Snakemake itself would print lines of its executor, too, and exit with 1.
    """
    if problem:
        print(f"nnlo: error: {problem}", file=sys.stderr)
        sys.exit(EXIT_USER_ERROR)


@dataclass(frozen=True)
class ShellPaths:
    """The characters that the plugin of a batch system passes to a job unchanged, as regular expressions.

    Attributes:
        folder: characters of the working folder.
        file: characters of the Snakefile, the experiment file and the input files.
    """

    folder: str
    file: str

    def problem(self, workflow: Any) -> str | None:
        """Return why jobs of a workflow of Snakemake cannot be submitted, or None."""
        inputs = (path for job in workflow.dag.jobs for path in job.input)
        files = [workflow.main_snakefile, *(workflow.overwrite_configfiles or []), *inputs]
        return self.problem_of(str(workflow.workdir_init), map(str, files))

    def problem_of(self, folder: str, names: Iterable[str]) -> str | None:
        """Return why jobs cannot run in a working folder with files of these names, or None."""
        # The jobs start `python -m snakemake` there.
        if problem := shadowed_packages(folder):
            return problem
        files = ((path, self.file, "a file") for path in names)
        folders = [
            (folder, self.folder, "a working folder"),
            (sys.executable, UNQUOTED, "a Python environment in a folder"),
        ]
        for path, characters, what in (*folders, *files):
            if refused := re.sub(characters, "", path):
                return (
                    f"{path}: jobs of the batch system cannot use {what} with {refused[0]!r} in its path, which "
                    "Snakemake does not quote; rename or move it, or run on this machine with --profile local"
                )
        return None


# The submitting shell reads the command of a job between double quotes, which the plugin for Slurm escapes in the command.
# Snakemake takes a path that starts with a quote for a quoted path.
SLURM_PATHS = ShellPaths(folder=r"""[^$`\\\n"]""", file=r"""[^$`\\\n"']|(?<!^)'""")
LSF_PATHS = ShellPaths(folder=UNQUOTED, file=r"""[^$`\\\n"']""")
