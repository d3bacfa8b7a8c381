"""How often trainings were begun, why that ended, and what it cost."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import escape

from nnlo_lib.report.job import Job
from nnlo_lib.report.words import MISSING, listing, plural, seconds, share
from nnlo_lib.state.attempts import Attempt
from nnlo_lib.state.tally import FINISHED, Tally


@dataclass(frozen=True)
class Piece:
    """An attempt as a piece of a bar: `width` is of the longest bar."""

    reason: str
    width: float
    text: str


@dataclass(frozen=True)
class Course:
    """A training that was interrupted: its attempts, one after the other, and what they come to."""

    run: str
    job: str
    pieces: tuple[Piece, ...]
    effective: str
    numbers: tuple[str, ...]

    @property
    def told(self) -> str:
        """The bar in words."""
        return f"{self.run} {self.job}: {', '.join(piece.text for piece in self.pieces)}"


HEADINGS = ("attempts", "ended by", "steps done again", "time lost", "time between", "of use (ETTR)")


def courses(jobs: Sequence[Job]) -> list[Course]:
    """Return the course of each training that took more than one attempt, or did not finish its only one."""
    tallies = [(job, job.tally) for job in jobs if job.tally and job.tally.interrupted]
    longest = max((tally.seconds for _, tally in tallies), default=0.0) or 1.0
    return [_course(job, tally, longest) for job, tally in tallies]


def reasons(found: Sequence[Course]) -> list[str]:
    """Return why attempts ended, `finished` first, then in order of first appearance."""
    names = dict.fromkeys(piece.reason for course in found for piece in course.pieces)
    return sorted(names, key=lambda name: name != FINISHED)


def sentence(jobs: Sequence[Job]) -> str:
    """Say how many trainings were interrupted, why, and what was done again; nothing where none is known to be."""
    tallies = [job.tally for job in jobs if job.tally and job.tally.broken_off]
    if not tallies:
        return ""
    why = sum((tally.broken_off for tally in tallies), Counter[str]())
    steps = sum(tally.lost_steps for tally in tallies)
    who = f"{len(tallies)} of {plural(len(jobs), 'training')} {'was' if len(tallies) == 1 else 'were'}"
    again = (
        f"{plural(steps, 'step')} {'was' if steps == 1 else 'were'} done again"
        if steps
        else "no step was lost"
    )
    return f"{who} interrupted and resumed ({escape(counted(why))}); {again}."


def counted(why: Counter[str]) -> str:
    """Write how often each reason was: 2 × preempted and 1 × time limit."""
    return listing([f"{count} × {reason}" for reason, count in why.items()])


def _course(job: Job, tally: Tally, longest: float) -> Course:
    _, seed, fold = job.key
    name = f"seed {seed}" + ("" if fold is None else f", fold {fold}")
    pieces = tuple(Piece(each.reason, each.seconds / longest, _text(each)) for each in tally.attempts)
    effective = MISSING if tally.effective is None else share(tally.effective)
    lost = MISSING if tally.lost_seconds is None else seconds(tally.lost_seconds)
    numbers = (
        f"{len(tally.attempts):,}", counted(tally.reasons), f"{tally.lost_steps:,}", lost,
        seconds(tally.between), effective,
    )  # fmt: skip
    return Course(job.run, name, pieces, effective, numbers)


def _text(attempt: Attempt) -> str:
    return f"attempt {attempt.attempt}, {seconds(attempt.seconds)} on {attempt.host}: {attempt.reason} at step {attempt.reached:,}"
