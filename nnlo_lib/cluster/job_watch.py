"""Judgment of submitted jobs from their status files and from the looks at the batch system."""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from nnlo_lib.batch.job_states import Fate, JobReport, QueueReport
from nnlo_lib.cluster.submission.job_files import StatusFile

STATUS_FILE_INTERVAL_S = 2.0  # seconds between looks at the status files, which cost the batch system nothing
FIRST_LOOK_S, LOOK_STEP_S, MAX_LOOK_S = 10.0, 10.0, 60.0  # seconds between looks at the batch system
# A job that ends passes through states, and a new job may not be known yet: such reports must be repeated.
LOOKS_TO_CONFIRM = 2
LOOKS_TO_LOSE = 3
SILENCE_S = 300.0  # seconds without an answer after which a warning is given, and repeated


class Queue(Protocol):
    """A batch system."""

    def look(self, numbers: Iterable[str]) -> QueueReport:
        """Return what the batch system knows about jobs."""
        ...


@dataclass
class _Doubt:
    """How often in succession a job was reported as interrupted, or was unknown."""

    interrupted: int = 0
    unknown: int = 0


class JobWatch:
    """Decide for each submitted job whether it runs, has ended or was lost; a failed query changes nothing.

    Args:
        queue: the batch system.
        clock: returns seconds.
        warn: prints a warning.
    """

    def __init__(
        self,
        queue: Queue,
        clock: Callable[[], float] = time.monotonic,
        warn: Callable[[str], None] = print,
    ) -> None:
        self._queue, self._clock, self._warn = queue, clock, warn
        self._doubts: dict[str, _Doubt] = {}
        self._last = QueueReport()
        self._interval = FIRST_LOOK_S
        self._next_look = clock()
        self._silent_since: float | None = None

    def judge(self, jobs: Mapping[str, StatusFile]) -> dict[str, JobReport]:
        """Return a report for each job; at most every few seconds, and mostly without asking the batch system."""
        written = {number: fate for number, file in jobs.items() if (fate := file.fate) is Fate.DONE}
        reports = {number: JobReport(fate, "done") for number, fate in written.items()}
        others = {number: file for number, file in jobs.items() if number not in reports}
        self._doubts = {number: self._doubts.get(number, _Doubt()) for number in others}
        if others and self._clock() >= self._next_look:
            reports |= self._look(others)
        if any(not report.fate.is_active for report in reports.values()):
            self._look_soon()
        return {number: reports.get(number, JobReport(Fate.RUNNING, "unknown")) for number in jobs}

    def _look(self, jobs: Mapping[str, StatusFile]) -> dict[str, JobReport]:
        answer = self._queue.look(jobs)
        self._next_look = self._clock() + self._interval
        self._interval = min(self._interval + LOOK_STEP_S, MAX_LOOK_S)
        self._note_silence(answer)
        return {number: self._judge(number, file, answer) for number, file in jobs.items()}

    def _look_soon(self) -> None:
        self._interval = FIRST_LOOK_S
        self._next_look = min(self._next_look, self._clock() + FIRST_LOOK_S)

    def _judge(self, number: str, file: StatusFile, answer: QueueReport) -> JobReport:
        doubt, report = self._doubts[number], answer.jobs.get(number)
        if report is None:
            if not answer.is_complete:
                return JobReport(Fate.RUNNING, "unknown")
            doubt.unknown += 1
            lost = JobReport(file.fate or Fate.INTERRUPTED, "unknown to the batch system")
            return lost if doubt.unknown >= LOOKS_TO_LOSE else JobReport(Fate.RUNNING, "unknown")
        doubt.unknown = 0
        doubt.interrupted = doubt.interrupted + 1 if report.fate is Fate.INTERRUPTED else 0
        if 0 < doubt.interrupted < LOOKS_TO_CONFIRM:
            self._look_soon()
            return JobReport(Fate.RUNNING, report.state)
        return report

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
