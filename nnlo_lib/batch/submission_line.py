"""Submission of jobs one after the other, for Snakemake's executors and for the search: after refusals, lost answers and restarts."""

from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Sequence
from threading import Event, RLock
from typing import Any

from nnlo_lib.batch.job_states import QueueReport
from nnlo_lib.batch.refusals import Refusal, RefusalKind, classify_refusal

FIRST_DELAY_S, MAX_DELAY_S = 10.0, 300.0  # before the next submission
UNKNOWN_REFUSALS = 3  # submissions of a job that end with an answer that is neither a limit nor a mistake
Job = Any  # of Snakemake, or a fold task


class SubmissionLine(ABC):
    """Base class of executors that submits one job at a time, and watches a job that is already in the queue.

    After a refusal for now (a limit or an outage concerns all jobs), all jobs wait behind the refused one. A job whose submission
    may have succeeded although the answer was lost, or that an earlier process submitted, is not submitted again; nothing is
    submitted while the batch system does not say whether there is such a job.
    """

    def _form_line(self, queue: Any) -> None:
        self._queue = queue
        self._submissions = Counter[Job]()
        self._unclear: set[Job] = set()  # jobs whose last submission may have succeeded
        self._waiting: deque[Job] = deque()
        self._refusals, self._delay_s = 0, FIRST_DELAY_S
        self._lock, self._is_closing = RLock(), Event()

    def _submit_in_turn(self, job: Job) -> None:
        """Submit a job now, or after the jobs that wait."""
        with self._lock:
            if self._waiting:
                self._waiting.append(job)
            else:
                self._submit(job)

    def _submit_waiting(self, refusals: int | None = None) -> None:
        """Submit the waiting jobs in their order until one is refused; `refusals`: not if more were refused since."""
        with self._lock:
            before = self._refusals if refusals is None else refusals
            while self._waiting and self._refusals == before:
                self._submit(self._waiting.popleft())

    def _submit_after_end(self) -> None:
        """Submit the waiting jobs, because a limit of submitted jobs may have room now."""
        # The batch system may still count the ended job: the next delay is short.
        self._delay_s = FIRST_DELAY_S
        self._submit_waiting()

    def _submit(self, job: Job) -> None:
        watched = self._watch_queued(job)
        if watched is None:
            which = "accepted the last submission" if job in self._unclear else "still runs an earlier job"
            self._submit_later(job, f"the batch system does not say whether it {which}")
        elif not watched:
            self._unclear.discard(job)
            self._submissions[job] += 1
            self._send(job)

    def _submit_later(self, job: Job, reason: str) -> None:
        delay, self._delay_s = self._delay_s, min(2 * self._delay_s, MAX_DELAY_S)
        with self._lock:
            self._waiting.appendleft(job)
            self._refusals += 1
            self._after(delay, self._submit_waiting, self._refusals)
        self._say(f"submissions wait {delay:g} s or until a job ends, {self._name_of(job)} first: {reason}")

    def _accepted(self) -> None:
        self._delay_s = FIRST_DELAY_S

    def _refused(self, job: Job, text: str) -> Refusal | None:
        """Submit a refused job again later, or return the refusal to report; `text` is what the batch system printed."""
        refusal = self._classify(text)
        is_unknown = refusal.kind is RefusalKind.UNKNOWN
        if is_unknown or refusal.kind is RefusalKind.LOST:
            self._unclear.add(job)
        has_tries = is_unknown and self._submissions[job] < UNKNOWN_REFUSALS
        waits = (refusal.kind.passes or has_tries) and not self._is_closing.is_set()
        if (waits or is_unknown) and self._watch_queued(job):
            return None
        if waits:
            self._submit_later(job, refusal.sentence)
        return None if waits else refusal

    def _watch_queued(self, job: Job) -> bool | None:
        """Watch the job in the queue that does the same; return False if there is none, None without an answer."""
        if job in self._unclear:
            numbers = self._unrecorded(job)
        elif job not in self._submissions:
            numbers = self._recorded(job)
        else:
            return False
        if numbers is None:
            return None
        report = self._queue.look(numbers) if numbers else QueueReport()
        active = [each for each in numbers if each in report.jobs and report.jobs[each].fate.is_active]
        if not active and not report.is_complete:
            return None
        # A job that is not listed yet may still be accepted: it stays unclear until the next submission, which looks again.
        if active:
            self._adopt(job, active[-1])
            self._unclear.discard(job)
        return bool(active)

    def _classify(self, text: str) -> Refusal:
        return classify_refusal(text)

    @abstractmethod
    def _send(self, job: Job) -> None:
        """Submit a job; call `_accepted` or `_refused`."""

    @abstractmethod
    def _unrecorded(self, job: Job) -> Sequence[str] | None:
        """Return the jobs without a record that submissions of `job` may have made, the newest last; None without an answer."""

    @abstractmethod
    def _recorded(self, job: Job) -> Sequence[str] | None:
        """Return the jobs of earlier processes that do the same as `job`, the newest last; None without an answer."""

    @abstractmethod
    def _adopt(self, job: Job, number: str) -> None:
        """Watch a job that is in the queue."""

    @abstractmethod
    def _name_of(self, job: Job) -> str:
        """Return a job as a user knows it."""

    @abstractmethod
    def _after(self, seconds: float, function: Callable[..., None], *arguments: Any) -> None:
        """Call a function after a delay."""

    @abstractmethod
    def _say(self, line: str) -> None:
        """Print a line."""
