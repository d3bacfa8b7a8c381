"""Files about submitted jobs in `.snakemake/nnlo_jobs/`: how a job ended, and which job belongs to which task.

The shell of a job writes its end to a file, so the end is known while the batch system does not answer, and after it has
forgotten the job.
"""

import json
import shlex
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from nnlo_lib.batch.job_states import Fate
from nnlo_lib.config.paths import SUBMITTED_JOBS_FOLDER
from nnlo_lib.core.atomic_file import atomic_write

STATUS_VARIABLE = "NNLO_COMMAND_STATUS_FILE"
DONE, FAILED = "done", "failed"
KEPT_DAYS = 30


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
    """What a new Snakemake must know to take over a job that an earlier Snakemake submitted.

    Attributes:
        task: checksum of rule, wildcards, parameters and inputs.
        status_file: path of the job's StatusFile.
        log: log file of the batch system.
    """

    task: str
    status_file: str
    log: str

    def write(self, number: str) -> None:
        """Write the record of the job with this number."""
        SUBMITTED_JOBS_FOLDER.mkdir(parents=True, exist_ok=True)
        with atomic_write(_record_path(number)) as part:
            part.write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, number: str) -> "SubmissionRecord | None":
        """Return the record of the job with this number, or None if there is none."""
        return cls._parse(_record_path(number))

    @classmethod
    def of_task(cls, task: str) -> "Iterator[tuple[str, SubmissionRecord]]":
        """Yield numbers and records of the jobs that did a task, the newest first."""
        paths = [path for path in SUBMITTED_JOBS_FOLDER.glob("*.json") if path.stem.isdigit()]
        for path in sorted(paths, key=lambda path: int(path.stem), reverse=True):
            if task and (record := cls._parse(path)) and record.task == task:
                yield path.stem, record

    @classmethod
    def _parse(cls, path: Path) -> "SubmissionRecord | None":
        try:
            return cls(**json.loads(path.read_text()))
        except (OSError, ValueError, TypeError):
            return None


def remove_old_files(now: float | None = None) -> None:
    """Remove files of jobs that were submitted more than KEPT_DAYS days ago."""
    oldest = (time.time() if now is None else now) - KEPT_DAYS * 86400
    for path in SUBMITTED_JOBS_FOLDER.glob("*"):
        with suppress(OSError):
            if path.stat().st_mtime < oldest:
                path.unlink()


def _record_path(number: str) -> Path:
    return SUBMITTED_JOBS_FOLDER / f"{number}.json"
