"""Outcome of an attempt, and what follows it: the job is submitted again, the task is tried again, or given up.

`decide` is the only retry policy. The launcher asks it before an attempt and after a launch in which no rank started, the
executors of searches and of Snakemake after the end of a job; none of them has limits of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import takewhile

from nnlo_lib.batch.job_states import PREEMPTED, Fate, JobReport
from nnlo_lib.core.errors import (
    EXIT_STOPPED,
    EXIT_USER_ERROR,
    PERMANENT_REASONS,
    RESUMABLE_REASONS,
    TRANSIENT_REASONS,
    ExitReason,
    error_headline,
)
from nnlo_lib.state.attempts import Attempt, count_out_of_memory

EXIT_PREEMPTED = EXIT_STOPPED  # the state is saved, too
MAX_TRIES_WITHOUT_RECORD = 3
MAX_FAILURES_WITHOUT_CHECKPOINT = 3
MAX_MEMORY_INCREASES = 3
# 1.5 ** 3: the last attempt requests 3.4 times resources.mem_mb.
MEMORY_FACTOR = 1.5
UNKNOWN_END = JobReport(Fate.FAILED, "unknown")


@dataclass(frozen=True)
class AttemptOutcome:
    """Outcome of an attempt."""

    reason: ExitReason
    error: str = ""
    # name of the signal that stopped the attempt, or that came after its training; or an empty string
    signal: str = ""
    is_user_error: bool = False  # whether the user must correct the cause
    # text for the log only: the traceback of the rank that failed, or the last lines of the launcher
    details: str = ""
    may_requeue: bool = False  # whether the job may ask the scheduler to queue it again
    # whether all ranks ended before MPI had connected them, for no known reason
    no_rank_started: bool = False

    @property
    def exit_status(self) -> int:
        """Exit status: 0 if finished, 75 if saved and stopped, 2 for a user error, else 1."""
        if self.reason in RESUMABLE_REASONS:
            return EXIT_PREEMPTED
        return EXIT_USER_ERROR if self.is_user_error else int(self.reason != "finished")

    @property
    def error_summary(self) -> str | None:
        """Error as one line (of a traceback, the exception); None if empty or the run is resumable."""
        return (error_headline(self.error) or None) if self.reason not in RESUMABLE_REASONS else None


class Action(Enum):
    """What follows the end of an attempt or a job."""

    RESUBMIT = "submitted again"  # not counted as a try
    RETRY = "tried again"  # counted: Snakemake gives up after `retries`
    GIVE_UP = "given up"


@dataclass(frozen=True)
class Decision:
    """An action, and why, as a phrase for a message.

    `reason`: with which the next attempt would end again if the task is given up; None if no attempt tells it.
    """

    action: Action
    why: str
    reason: ExitReason | None = None


@dataclass(frozen=True)
class EndReport:
    """What is known of the end of a job, beside the attempts that it recorded."""

    job: JobReport = UNKNOWN_END
    # exit status of the job's command; None if unknown, or if the command was killed
    command_status: int | None = None
    runtime: int = 0  # time limit of an attempt in minutes, for messages
    # tries in succession, this one included, that left no attempt although the job trains
    tries_without_record: int = 0


def decide(attempts: Sequence[Attempt], report: EndReport) -> Decision:
    """Return what follows the end of a job or of an attempt.

    `attempts`: those recorded of the task in their order; empty if the job left none, or trains nothing.
    """
    last = attempts[-1] if attempts else None
    # Slurm's own memory check cancels a job that uses too much.
    canceled = report.job.fate is Fate.CANCELED and not (last and last.reason == "out of memory")
    if canceled or (last and last.reason == "canceled"):
        return Decision(Action.GIVE_UP, "canceled; run the same command again to resume", "canceled")
    if report.job.state == PREEMPTED:
        return Decision(Action.RESUBMIT, "preempted")
    # After a finished training, it was the evaluation that failed or was stopped.
    if last is None or last.reason == "finished":
        return _decide_without_record(report, is_trained=last is not None)
    if hopeless := _reason_to_give_up(attempts, report.runtime):
        return hopeless
    if last.reason in RESUMABLE_REASONS or report.job.fate is Fate.INTERRUPTED:
        return Decision(Action.RESUBMIT, last.reason)
    return Decision(Action.RETRY, last.reason)


def count_without_record(before: int, is_recorded: bool, job: JobReport) -> int:
    """Return the number of tries in succession that left no attempt, after one more try; a preempted job is no try."""
    return 0 if is_recorded else before + (job.state != PREEMPTED)


def _decide_without_record(report: EndReport, is_trained: bool) -> Decision:
    tries = report.tries_without_record
    if report.command_status == EXIT_USER_ERROR:
        return Decision(Action.GIVE_UP, "the command refused its input")
    if report.command_status == EXIT_PREEMPTED:
        return Decision(Action.RESUBMIT, "stopped and saved")
    end = "before the first line of the training's log"
    if is_trained:
        end = "after the training, as in its evaluation"
    if tries >= MAX_TRIES_WITHOUT_RECORD:
        return Decision(Action.GIVE_UP, f"{tries} consecutive starts ended {end}")
    return Decision(Action.RETRY, f"ended {end}" if tries else "see its log")


def _reason_to_give_up(attempts: Sequence[Attempt], runtime: int) -> Decision | None:
    """Return the decision if the end of the next attempt is predictable, else None."""
    last = attempts[-1]
    if last.reason in PERMANENT_REASONS:
        why = f"not retried, because it would fail like attempt {last.attempt} ({last.reason}): {last.error}"
        return Decision(Action.GIVE_UP, why, last.reason)
    # Retries are bounded by progress: two failures at the same step are not transient.
    failures = _last_ones(attempts, TRANSIENT_REASONS)
    if len({(each.reached, each.saved) for each in failures[-2:]}) == 1 < len(failures):
        why = f"failed twice at step {last.reached}, therefore not retried: {last.error}"
        return Decision(Action.GIVE_UP, why, last.reason)
    failures = failures[-MAX_FAILURES_WITHOUT_CHECKPOINT:]
    if len({each.saved for each in failures}) == 1 and len(failures) == MAX_FAILURES_WITHOUT_CHECKPOINT:
        why = (
            f"failed {len(failures)} times in succession without a checkpoint after step {last.saved}, therefore not "
            f"retried: {last.error}"
        )
        return Decision(Action.GIVE_UP, why, last.reason)
    late = _last_ones(attempts, ("time limit",))[-2:]
    if len(late) == 2 and all(each.saved <= each.start for each in late):
        why = f"resources.runtime: {runtime} minutes are too short to train and save one step; raise resources.runtime"
        return Decision(Action.GIVE_UP, why, "bad input")
    if last.reason == "out of memory" and count_out_of_memory(attempts) > MAX_MEMORY_INCREASES:
        why = (
            f"out of memory even after resources.mem_mb was raised {MAX_MEMORY_INCREASES} times: {last.error}"
        )
        return Decision(Action.GIVE_UP, why, last.reason)
    return None


def _last_ones(attempts: Sequence[Attempt], reasons: Sequence[str]) -> list[Attempt]:
    """Return the last attempts in succession that ended by one of the reasons."""
    return [*takewhile(lambda each: each.reason in reasons, reversed(attempts))][::-1]


def memory_for_next_attempt(memory: int, attempts: Sequence[Attempt]) -> int:
    """Return `memory` times MEMORY_FACTOR per out-of-memory attempt, at most MAX_MEMORY_INCREASES times."""
    return round(memory * MEMORY_FACTOR ** min(count_out_of_memory(attempts), MAX_MEMORY_INCREASES))
