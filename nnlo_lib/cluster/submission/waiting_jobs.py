"""Jobs that wait after the batch system refused a submission for now: a limit or an outage concerns all jobs."""

from collections import deque
from collections.abc import Callable
from threading import RLock
from typing import Any

from nnlo_lib.cluster.snakemake_job import Job
from nnlo_lib.cluster.submission.backoff import Backoff


class WaitingJobs:
    """Submits one job at a time; after a refusal, all jobs wait behind the refused one.

    Args:
        submit: submits a job; calls `add_refused` if the batch system refuses it for now.
        after: calls a function with its arguments in a thread after a number of seconds.
    """

    def __init__(self, submit: Callable[[Job], None], after: Callable[..., Any]) -> None:
        self._submit, self._after = submit, after
        self._jobs: deque[Job] = deque()
        self._backoff, self._refusals, self._lock = Backoff(), 0, RLock()

    def submit(self, job: Job) -> None:
        """Submit a job now, or after the jobs that wait."""
        with self._lock:
            if self._jobs:
                self._jobs.append(job)
            else:
                self._submit(job)

    def add_refused(self, job: Job) -> float:
        """Let a refused job wait before all others; return the seconds after which it is tried again."""
        delay = self._backoff.delay()
        with self._lock:
            self._jobs.appendleft(job)
            self._refusals += 1
            self._after(delay, self._submit_after, self._refusals)
        return delay

    def accepted(self) -> None:
        """Note an accepted submission: the delay after the next refusal is the shortest."""
        self._backoff.succeeded()

    def job_ended(self) -> None:
        """Submit the waiting jobs, because a limit of submitted jobs may have room now."""
        # The batch system may still count the ended job: the next delay is short.
        self._backoff.succeeded()
        self._submit_waiting()

    def _submit_after(self, refusal: int) -> None:
        # After a later refusal, the jobs wait for that refusal's delay.
        if refusal == self._refusals:
            self._submit_waiting()

    def _submit_waiting(self) -> None:
        """Submit the waiting jobs in their order until one is refused."""
        with self._lock:
            refusals = self._refusals
            while self._jobs and self._refusals == refusals:
                self._submit(self._jobs.popleft())
