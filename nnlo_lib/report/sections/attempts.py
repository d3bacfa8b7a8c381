"""Attempts of the jobs: number, end reasons, and cost of interruptions."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import escape

from nnlo_lib.core.text_format import MISSING
from nnlo_lib.report.formatting import format_duration, listing, plural, share
from nnlo_lib.state.attempt_statistics import FINISHED, AttemptStatistics
from nnlo_lib.state.attempts import Attempt
from nnlo_lib.state.finished_run import FinishedRun


@dataclass(frozen=True)
class AttemptSegment:
    """An attempt as a segment of a bar; `width` is a fraction of the longest bar."""

    reason: str
    width: float
    text: str


@dataclass(frozen=True)
class AttemptTimeline:
    """The attempts of an interrupted job, in their order.

    Attributes:
        run: name of the run.
        job: seed and fold.
        segments: one per attempt.
        effective: effective training time ratio, formatted.
        numbers: cells of the table, in the order of HEADINGS.
    """

    run: str
    job: str
    segments: tuple[AttemptSegment, ...]
    effective: str
    numbers: tuple[str, ...]

    @property
    def description(self) -> str:
        """The attempts as text."""
        return f"{self.run} {self.job}: {', '.join(segment.text for segment in self.segments)}"


HEADINGS = ("attempts", "end reasons", "repeated steps", "lost time", "time between attempts", "ETTR")


def attempt_timelines(jobs: Sequence[FinishedRun]) -> list[AttemptTimeline]:
    """Return the timeline of each job with an unfinished attempt."""
    tallies = [
        (job, job.attempt_statistics)
        for job in jobs
        if job.attempt_statistics and job.attempt_statistics.is_interrupted
    ]
    # The bars of all jobs have the same scale; `or 1.0` avoids a division by zero.
    longest = max((tally.total_seconds for _, tally in tallies), default=0.0) or 1.0
    return [_timeline(job, tally, longest) for job, tally in tallies]


def end_reasons(timelines: Sequence[AttemptTimeline]) -> list[str]:
    """Return the end reasons of all attempts, `finished` first, then in order of first appearance."""
    names = dict.fromkeys(segment.reason for timeline in timelines for segment in timeline.segments)
    return sorted(names, key=lambda name: name != FINISHED)


def interruptions_sentence(jobs: Sequence[FinishedRun]) -> str:
    """Return a sentence on interrupted jobs, the reasons and repeated steps; empty without interruptions."""
    tallies = [
        job.attempt_statistics
        for job in jobs
        if job.attempt_statistics and job.attempt_statistics.unfinished_by_reason
    ]
    if not tallies:
        return ""
    reasons = sum((tally.unfinished_by_reason for tally in tallies), Counter[str]())
    steps = sum(tally.lost_steps for tally in tallies)
    interrupted = (
        f"{len(tallies)} of {plural(len(jobs), 'training task')} {'was' if len(tallies) == 1 else 'were'}"
    )
    repeated = (
        f"{plural(steps, 'step')} {'was' if steps == 1 else 'were'} repeated"
        if steps
        else "no step was repeated"
    )
    # The sentence becomes part of the headline, which is Markup.
    return f"{interrupted} interrupted and resumed ({escape(format_counts(reasons))}); {repeated}."


def format_counts(counts: Counter[str]) -> str:
    """Return the count of each reason as text: `2 × preempted and 1 × time limit`."""
    return listing([f"{count} × {reason}" for reason, count in counts.items()])


def _timeline(job: FinishedRun, tally: AttemptStatistics, longest: float) -> AttemptTimeline:
    _, seed, fold = job.key
    name = f"seed {seed}" + ("" if fold is None else f", fold {fold}")
    segments = tuple(
        AttemptSegment(each.reason, each.seconds / longest, _text(each)) for each in tally.attempts
    )
    effective = MISSING if tally.effective_time_ratio is None else share(tally.effective_time_ratio)
    lost = MISSING if tally.lost_seconds is None else format_duration(tally.lost_seconds)
    numbers = (
        f"{len(tally.attempts):,}", format_counts(tally.count_by_reason), f"{tally.lost_steps:,}", lost,
        format_duration(tally.seconds_between_attempts), effective,
    )  # fmt: skip
    return AttemptTimeline(job.run, name, segments, effective, numbers)


def _text(attempt: Attempt) -> str:
    return f"attempt {attempt.attempt}, {format_duration(attempt.seconds)} on {attempt.host}: {attempt.reason} at step {attempt.reached:,}"
