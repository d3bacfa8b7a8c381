"""Jobs without results: why each ended, and the last lines of its log."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nnlo_lib.config.paths import RunPaths
from nnlo_lib.report.formatting import plural
from nnlo_lib.state.attempt_statistics import FINISHED
from nnlo_lib.state.attempts import read_attempts
from nnlo_lib.state.finished_run import FinishedRun

LAST_LINES = 20


@dataclass(frozen=True)
class FailedJob:
    """A job without results.

    Attributes:
        run: name of the run.
        job: folder below the run's folder, such as `seed-1/fold-2`.
        reason: reason of the end.
        error: message of the error, or an empty string.
        ended: end of the last attempt, ISO 8601, or an empty string.
        log: path of the log, or an empty string if there is none.
        lines: last lines of the log.
    """

    run: str
    job: str
    reason: str
    error: str = ""
    ended: str = ""
    log: str = ""
    lines: str = ""

    @property
    def cause(self) -> str:
        """Reason and error as text."""
        return f"{self.reason}: {self.error}" if self.error else self.reason


def failed_jobs(folders: Sequence[Path]) -> list[FailedJob]:
    """Return the jobs in `folders`, which have no results, in the order given."""
    return [read_failed_job(folder) for folder in folders]


def failed_jobs_sentence(failed: Sequence[FailedJob], finished: Sequence[FinishedRun]) -> str:
    """Return how many jobs of each affected run have results; empty if no job failed."""
    if not failed:
        return ""
    affected = dict.fromkeys(job.run for job in failed)
    counts = [_finished_of(run, failed, finished) for run in affected]
    return (
        f"{plural(len(failed), 'training task')} of {len(failed) + len(finished)} did not finish and "
        f"{'is' if len(failed) == 1 else 'are'} not part of this page: {'; '.join(counts)}."
    )


def read_failed_job(folder: Path) -> FailedJob:
    """Return why the job in a folder has no results, from its attempts and its log."""
    paths = RunPaths(folder)
    run, job = _name(folder)
    if paths.summary.exists():
        log, lines = _last_lines(paths.workflow_logs / "evaluate.log", newer_than=paths.summary)
        return FailedJob(run, job, _reason_without_evaluation(paths), log=log, lines=lines)
    log, lines = _last_lines(paths.workflow_logs / "train.log")
    log, lines = (log, lines) if log else _last_lines(paths.state.log)
    attempts = read_attempts(paths.state.folder)
    if attempts and attempts[-1].reason != FINISHED:
        last = attempts[-1]
        return FailedJob(run, job, last.reason, last.error or "", last.ended, log, lines)
    return FailedJob(run, job, "no end was recorded" if log else "not started", log=log, lines=lines)


def _reason_without_evaluation(paths: RunPaths) -> str:
    if not paths.evaluation.exists():
        return "trained, but not evaluated"
    return "the results are of other settings, data or code"


def _name(folder: Path) -> tuple[str, str]:
    """Return run and job; the folder is <experiment>/<run>/seed-<s>[/fold-<k>]."""
    depth = 2 if folder.name.startswith("fold-") else 1
    return folder.parents[depth - 1].name, "/".join(folder.parts[-depth:])


def _last_lines(path: Path, newer_than: Path | None = None) -> tuple[str, str]:
    """Return path and last lines of a log; both are empty if it cannot be read, is empty, or is too old."""
    try:
        if newer_than and path.stat().st_mtime_ns < newer_than.stat().st_mtime_ns:
            return "", ""
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return "", ""
    return (str(path), "\n".join(lines[-LAST_LINES:])) if lines else ("", "")


def _finished_of(run: str, failed: Sequence[FailedJob], finished: Sequence[FinishedRun]) -> str:
    done = sum(job.run == run for job in finished)
    return f"{run} has {done} of {done + sum(job.run == run for job in failed)}"
