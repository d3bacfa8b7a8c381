"""Watch of submitted jobs, from their status files in `.snakemake/nnlo_jobs/` and from looks at the batch system.

The shell of a job writes its end to a file, so the end is known while the batch system does not answer, and after it has
forgotten the job. Another file records which job belongs to which task.
"""

import json
import shlex
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from nnlo_lib.batch.job_states import Fate, JobReport, QueueReport
from nnlo_lib.config.paths import SUBMITTED_JOBS_FOLDER
from nnlo_lib.core.atomic_file import atomic_write

STATUS_VARIABLE = "NNLO_COMMAND_STATUS_FILE"
DONE, FAILED = "done", "failed"
KEPT_DAYS = 30
STATUS_FILE_INTERVAL_S = 2.0  # seconds between looks at the status files, which cost the batch system nothing
FIRST_LOOK_S, LOOK_STEP_S, MAX_LOOK_S = 10.0, 10.0, 60.0  # seconds between looks at the batch system
# A job that ends passes through states, and a new job may not be known yet: such reports must be repeated.
LOOKS_TO_CONFIRM = 2
LOOKS_TO_LOSE = 3
SILENCE_S = 300.0  # seconds without an answer after which a warning is given, and repeated


@dataclass(frozen=True)
class StatusFile:
    """The file into which one submission of a job writes its end; `path` is unique to the submission."""

    path: Path

    @property
    def prefix(self) -> str:
        """Shell commands before the job's; a requeued job runs them again."""
        variable = f"{STATUS_VARIABLE}={shlex.quote(str(self._command))}"
        return f"rm -f {shlex.quote(str(self.path))} && export {variable}"

    @property
    def suffix(self) -> str:
        """Shell commands after `&&` behind the job's; they keep its exit status."""
        # Without `$` and double quotes, which the submitting shell would expand.
        file = shlex.quote(str(self.path))
        return f"{{ echo {DONE} > {file} || true; }} || {{ echo {FAILED} > {file}; false; }}"

    @property
    def fate(self) -> Fate | None:
        """DONE or FAILED as the job's shell wrote it; None if the job has not ended or was killed."""
        with suppress(OSError):
            return {DONE: Fate.DONE, FAILED: Fate.FAILED}.get(self.path.read_text().strip())
        return None

    @property
    def command_status(self) -> int | None:
        """Exit status of the rule's shell command; None if unknown."""
        with suppress(OSError, ValueError):
            return int(self._command.read_text())
        return None

    @property
    def _command(self) -> Path:
        return self.path.with_suffix(".command")


@dataclass(frozen=True)
class SubmissionRecord:
    """What a new Snakemake must know to take over a job that an earlier Snakemake submitted."""

    task: str  # checksum of rule, wildcards, parameters and inputs
    status_file: str  # path of the job's StatusFile
    log: str  # log file of the batch system
    output: str = ""  # first output of the job, in the folder of its training

    def write(self, number: str) -> None:
        """Write the record of the job with this number."""
        SUBMITTED_JOBS_FOLDER.mkdir(parents=True, exist_ok=True)
        with atomic_write(_record_path(number)) as part:
            part.write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, number: str) -> "SubmissionRecord | None":
        """Return the record of the job with this number, or None if there is none."""
        try:
            return cls(**json.loads(_record_path(number).read_text()))
        except (OSError, ValueError, TypeError):
            return None

    @classmethod
    def jobs_of(cls, task: str) -> list[str]:
        """Return the numbers of the jobs that did a task, the newest last."""
        numbers = [path.stem for path in SUBMITTED_JOBS_FOLDER.glob("*.json") if path.stem.isdigit()]
        records = ((number, cls.read(number)) for number in sorted(numbers, key=int) if task)
        return [number for number, record in records if record and record.task == task]


def _record_path(number: str) -> Path:
    return SUBMITTED_JOBS_FOLDER / f"{number}.json"


def remove_old_files() -> None:
    """Remove files of jobs that were submitted more than KEPT_DAYS days ago."""
    oldest = time.time() - KEPT_DAYS * 86400
    for path in SUBMITTED_JOBS_FOLDER.glob("*"):
        with suppress(OSError):
            if path.stat().st_mtime < oldest:
                path.unlink()


class Queue(Protocol):
    """A batch system."""

    def look(self, numbers: Iterable[str]) -> QueueReport:
        """Return what the batch system knows about jobs."""
        ...


class JobWatch:
    """Decide for each submitted job whether it runs, has ended or was lost; a failed query changes nothing."""

    def __init__(
        self,
        queue: Queue,
        clock: Callable[[], float] = time.monotonic,
        warn: Callable[[str], None] = print,
    ) -> None:
        self._queue, self._clock, self._warn = queue, clock, warn
        # How often in succession a job was reported as interrupted, or was unknown.
        self._interrupted, self._unknown = Counter[str](), Counter[str]()
        self._interval = FIRST_LOOK_S
        self._next_look = clock()
        self._silent_since: float | None = None

    def judge(self, jobs: Mapping[str, StatusFile]) -> dict[str, JobReport]:
        """Return a report for each job, mostly without asking the batch system."""
        reports = {
            number: JobReport(Fate.DONE, "done") for number, file in jobs.items() if file.fate is Fate.DONE
        }
        others = {number: file for number, file in jobs.items() if number not in reports}
        if others and self._clock() >= self._next_look:
            answer = self._queue.look(others)
            self._next_look = self._clock() + self._interval
            self._interval = min(self._interval + LOOK_STEP_S, MAX_LOOK_S)
            self._note_silence(answer)
            reports |= {number: self._judge(number, file, answer) for number, file in others.items()}
        if any(not report.fate.is_active for report in reports.values()):
            self._look_soon()
        return {number: reports.get(number, JobReport(Fate.RUNNING, "unknown")) for number in jobs}

    def _look_soon(self) -> None:
        self._interval = FIRST_LOOK_S
        self._next_look = min(self._next_look, self._clock() + FIRST_LOOK_S)

    def _judge(self, number: str, file: StatusFile, answer: QueueReport) -> JobReport:
        report = answer.jobs.get(number)
        if report is None:
            self._unknown[number] += answer.is_complete
            if not answer.is_complete or self._unknown[number] < LOOKS_TO_LOSE:
                return JobReport(Fate.RUNNING, "unknown")
            return JobReport(file.fate or Fate.INTERRUPTED, "unknown to the batch system")
        del self._unknown[number]
        if report.fate is not Fate.INTERRUPTED:
            del self._interrupted[number]
            return report
        self._interrupted[number] += 1
        if self._interrupted[number] >= LOOKS_TO_CONFIRM:
            return report
        self._look_soon()
        return JobReport(Fate.RUNNING, report.state)

    def _note_silence(self, answer: QueueReport) -> None:
        now = self._clock()
        if answer.is_complete:
            self._silent_since = None
        elif self._silent_since is None:
            self._silent_since = now
        elif now - self._silent_since >= SILENCE_S:
            self._silent_since = now
            self._warn(
                f"the batch system has not answered all questions for {SILENCE_S / 60:g} minutes; jobs continue, "
                "and are looked at again until it does"
            )
