"""What to do after a job that did not succeed: submit it again, let Snakemake count a try, or give up."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from nnlo_lib.batch.job_states import PREEMPTED, Fate, JobReport
from nnlo_lib.core.errors import EXIT_USER_ERROR
from nnlo_lib.core.exit_reason import RESUMABLE_REASONS
from nnlo_lib.state.attempts import Attempt
from nnlo_lib.state.outcome import EXIT_PREEMPTED
from nnlo_lib.state.retry_policy import reason_not_to_retry

CANCELED = "canceled"

MAX_TRIES_WITHOUT_RECORD = 3


class Action(Enum):
    """What follows the end of a job."""

    RESUBMIT = "submitted again"  # not counted as a try
    RETRY = "retried"  # counted: Snakemake gives up after `retries`
    GIVE_UP = "not retried"


@dataclass(frozen=True)
class NextStep:
    """An action and its reason, a phrase for a message."""

    action: Action
    why: str


@dataclass(frozen=True)
class EndedJob:
    """A job that ended without success.

    Attributes:
        number: number of the job.
        report: what the batch system says.
        attempts: attempts of the job's training; empty for other jobs.
        command_status: exit status of the rule's command; None if the command was killed.
        runtime: time limit in minutes.
        tries_without_record: tries in succession, this one included, that left no attempt although the job trains.
    """

    number: str
    report: JobReport
    attempts: Sequence[Attempt] = ()
    command_status: int | None = None
    runtime: int = 0
    tries_without_record: int = 0

    @property
    def last_attempt(self) -> Attempt | None:
        """The attempt that this job made last; None if there is none."""
        own = [attempt for attempt in self.attempts if attempt.job == self.number]
        return own[-1] if own else None

    def after_tries_without_record(self, count: int) -> "EndedJob":
        """Return the job with this number of tries without a record."""
        return replace(self, tries_without_record=count)


def next_step(job: EndedJob) -> NextStep:
    """Return what follows the end of a job."""
    last, state = job.last_attempt, job.report.state
    # Slurm's own memory check cancels a job that uses too much.
    out_of_memory = last is not None and last.reason == "out of memory"
    if (job.report.fate is Fate.CANCELED and not out_of_memory) or (last and last.reason == CANCELED):
        return NextStep(Action.GIVE_UP, "canceled; run the same command again to resume")
    if state == PREEMPTED:
        return NextStep(Action.RESUBMIT, "preempted")
    if last is None:
        return _step_of_status(job)
    if hopeless := reason_not_to_retry(job.attempts, job.runtime):
        return NextStep(Action.GIVE_UP, hopeless.error or last.reason)
    if last.reason in RESUMABLE_REASONS or job.report.fate is Fate.INTERRUPTED:
        return NextStep(Action.RESUBMIT, last.reason)
    return NextStep(Action.RETRY, last.reason)


def _step_of_status(job: EndedJob) -> NextStep:
    """Return the next step after a job that left no attempt of a training."""
    if job.command_status == EXIT_USER_ERROR:
        return NextStep(Action.GIVE_UP, "the command refused its input")
    if job.command_status == EXIT_PREEMPTED:
        return NextStep(Action.RESUBMIT, "stopped and saved")
    if job.tries_without_record >= MAX_TRIES_WITHOUT_RECORD:
        return NextStep(
            Action.GIVE_UP,
            f"{job.tries_without_record} tries ended before the first line of the training's log",
        )
    return NextStep(
        Action.RETRY, "the training left no record" if job.tries_without_record else "see its log"
    )
