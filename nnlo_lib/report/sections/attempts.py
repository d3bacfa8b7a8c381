"""Attempts of the jobs, the cost of their interruptions, and jobs without results, with the last lines of their logs."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from markupsafe import escape

from nnlo_lib.config.paths import RunPaths
from nnlo_lib.core.text_format import MISSING, plural
from nnlo_lib.report.figure import Figure, bar_spec
from nnlo_lib.report.formatting import format_duration, listing, share, task_name
from nnlo_lib.state.attempts import FINISHED, read_attempts
from nnlo_lib.state.finished_run import FinishedRun

HEADINGS = (
    "training task", "attempts", "end reasons", "repeated steps", "lost time", "time between attempts", "ETTR",
    "each attempt",
)  # fmt: skip
NOT_STARTED = "not started"
NOT_EVALUATED, EVALUATION_STOPPED = "trained, but not evaluated", "trained; its evaluation was stopped"
STOPPED_CAUSES = {"preempted", NOT_STARTED, EVALUATION_STOPPED}  # the same command resumes
LAST_LINES = 20  # lines of a log on the page


def attempt_figure(jobs: Sequence[FinishedRun]) -> Figure | None:
    """Return the attempts of each job with an unfinished attempt as bars; None without any."""
    parts, rows = [], []
    for job in jobs:
        tally = job.attempt_statistics
        if not tally or not tally.unfinished_by_reason:
            continue
        name, ratio, lost = task_name(*job.key), tally.effective_time_ratio, tally.lost_seconds
        effective = MISSING if ratio is None else share(ratio)
        # An attempt of no duration has a bar that can be seen.
        least, texts = tally.total_seconds / 200 or 1.0, []
        for each in tally.attempts:
            took = f"{format_duration(each.seconds)} on {each.host}"
            texts.append(f"attempt {each.attempt}, {took}: {each.reason} at step {each.reached:,}")
            parts.append((f"{name} · {effective}", each.reason, max(each.seconds, least), texts[-1]))
        rows.append([
            name, f"{len(tally.attempts):,}", format_counts(tally.count_by_reason), f"{tally.lost_steps:,}",
            MISSING if lost is None else format_duration(lost), format_duration(tally.seconds_between_attempts),
            effective, "; ".join(texts),
        ])  # fmt: skip
    if not rows:
        return None
    table = pd.DataFrame(parts, columns=["label", "part", "value", "text"])
    reasons = sorted(dict.fromkeys(table["part"]), key=lambda reason: reason != FINISHED)
    text = "Duration of each attempt, by the reason of its end."
    return Figure("Attempts", "seconds", text, bar_spec(table, reasons), HEADINGS, rows)


def interruptions_sentence(jobs: Sequence[FinishedRun]) -> str:
    """Return a sentence on interrupted jobs, the reasons and repeated steps; empty without interruptions."""
    tallies = [tally for job in jobs if (tally := job.attempt_statistics) and tally.unfinished_by_reason]
    if not tallies:
        return ""
    reasons = sum((tally.unfinished_by_reason for tally in tallies), Counter[str]())
    steps = sum(tally.lost_steps for tally in tallies)
    were = "was" if len(tallies) == 1 else "were"
    repeated = f"{plural(steps, 'step')} {'was' if steps == 1 else 'were'}" if steps else "no step was"
    # The sentence becomes part of the headline, which is Markup.
    return (
        f"{len(tallies)} of {plural(len(jobs), 'training task')} {were} interrupted and resumed "
        f"({escape(format_counts(reasons))}); {repeated} repeated."
    )


def format_counts(counts: Counter[str]) -> str:
    """Return the count of each reason as text: `2 × preempted and 1 × time limit`."""
    return listing([f"{count} × {reason}" for reason, count in counts.items()])


@dataclass(frozen=True)
class FailedJob:
    """A job without results: its folder below the run's folder, the reason and error, and the end of its log.

    What is not known is an empty string; `ended`: end of the last attempt, ISO 8601.
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


def failed_jobs_sentence(failed: Sequence[FailedJob], finished: Sequence[FinishedRun]) -> str:
    """Return how many jobs of each affected run have results; empty if no job failed."""
    if not failed:
        return ""
    counts = []
    for run, unfinished in Counter(job.run for job in failed).items():
        done = sum(job.run == run for job in finished)
        counts.append(f"{run} has {done} of {done + unfinished}")
    tasks, are = plural(len(failed), "training task"), "is" if len(failed) == 1 else "are"
    return (
        f"{tasks} of {len(failed) + len(finished)} did not finish and {are} not part of this page: "
        f"{'; '.join(counts)}."
    )


def read_failed_job(folder: Path) -> FailedJob:
    """Return why the job in a folder has no results, from its attempts and its log."""
    paths, depth = RunPaths(folder), 2 if folder.name.startswith("fold-") else 1
    # The folder is <experiment>/<run>/seed-<s>[/fold-<k>].
    run, job = folder.parents[depth - 1].name, "/".join(folder.parts[-depth:])
    train_log = paths.workflow_logs / "train.log"
    if paths.summary.exists():
        log, lines = _last_lines(train_log, newer_than=paths.summary) or ("", "")
        reason = EVALUATION_STOPPED if _was_stopped(lines) else NOT_EVALUATED
        if paths.evaluation.exists():
            reason = "the results are of other settings, data or code"
        return FailedJob(run, job, reason, log=log, lines=lines)
    log, lines = _last_lines(train_log) or _last_lines(paths.state.log) or ("", "")
    attempts = read_attempts(paths.state.folder)
    if attempts and (last := attempts[-1]).reason != FINISHED:
        return FailedJob(run, job, last.reason, last.error or "", last.ended, log, lines)
    reason = "no end was recorded" if log and not _was_stopped(lines) else NOT_STARTED
    return FailedJob(run, job, reason, log=log, lines=lines)


def _was_stopped(lines: str) -> bool:
    """Return True if a signal ended a job outside of its attempts: before the first, or in the evaluation."""
    return lines.rpartition("\n")[2].startswith("nnlo: stopped by ")


def _last_lines(path: Path, newer_than: Path | None = None) -> tuple[str, str] | None:
    """Return path and last lines of a log; None if it cannot be read, is empty, or is too old."""
    try:
        if newer_than and path.stat().st_mtime_ns < newer_than.stat().st_mtime_ns:
            return None
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    return (str(path), "\n".join(lines[-LAST_LINES:])) if lines else None
