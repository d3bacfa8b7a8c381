"""One attempt at a training: alone in its folder, only if there is hope, and on record when it has ended."""

import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from threading import Event

from nnlo_lib.launch.launch import launch
from nnlo_lib.launch.limit import Limit
from nnlo_lib.launch.obituary import obituary
from nnlo_lib.launch.parting import Policy
from nnlo_lib.launch.signals import Heard
from nnlo_lib.launch.standing import standing
from nnlo_lib.state import attempts
from nnlo_lib.state.attempts import Attempt
from nnlo_lib.state.lease import HeldError, Lease
from nnlo_lib.state.outcome import Outcome
from nnlo_lib.state.retries import futile
from nnlo_lib.state.scheduler import Job
from nnlo_lib.state.speech import say
from nnlo_lib.train.task import Task

Launch = Callable[[Task, str, Limit, Heard, Event], Outcome]


@dataclass(frozen=True)
class Wishes:
    """How to train. minutes: the time limit of the scheduler's job; attempt: which one Snakemake makes, if it does.

    requeue: puts the job back into its queue, or says why not; patient: waits for whoever else is in the folder, as what
    Snakemake starts does.
    """

    launcher: str = "mpiexec"
    minutes: float | None = None
    attempt: int | None = None
    on_preemption: Policy = "exit"
    requeue: Callable[[Job], str] = Job.requeue
    patient: bool = False


@dataclass(frozen=True)
class Place:
    """What an attempt finds itself in."""

    job: Job | None
    limit: Limit
    signals: Heard


def attempt(task: Task, wishes: Wishes, place: Place, launch: Launch = launch) -> Outcome:
    """Train as the only one in the task's folder; its record is on disk, and the folder free, when this returns.

    Raises UserError if somebody else is in the folder or it cannot be written.
    """
    lease, signals = Lease(task.state), place.signals
    unwatched = wishes.attempt is not None or (place.job is not None and not sys.stderr.isatty())
    patient = wishes.patient or unwatched
    try:
        dead = lease.acquire(patient, lambda: bool(signals.first) or place.limit.is_near)
    except HeldError as error:
        return Outcome("preempted", str(error), signals.first)
    try:
        if dead:
            _record(task, obituary(task.state, dead, task.run.parallel.ranks))
        return _foreseen(task, wishes, place.job) or _try(task, wishes, place, lease, launch)
    finally:
        lease.release()


def _foreseen(task: Task, wishes: Wishes, job: Job | None) -> Outcome | None:
    """Return how this would end if it is the same again: Snakemake's next attempt, or a requeued job."""
    before = attempts.read(task.state)
    if not before or wishes.attempt is None:
        return None
    requeued = job is not None and job.number == before[-1].job
    if wishes.attempt == 1 and not requeued:
        return None
    return futile(before, task.run.resources.runtime) or (None if requeued else _cancelled(before[-1], job))


def _cancelled(last: Attempt, job: Job | None) -> Outcome | None:
    """Respect that a person ended the job of the last attempt."""
    before = Job.of(job.scheduler, last.job) if job else None
    if before is None or not before.was_cancelled():
        return None
    return Outcome(
        "killed", f"job {before.number} was cancelled: not tried again until somebody starts this again"
    )


def _try(task: Task, wishes: Wishes, place: Place, lease: Lease, launch: Launch) -> Outcome:
    started, clock = _now(), time.monotonic()
    outcome = launch(task, wishes.launcher, place.limit, place.signals, lease.lost)
    if lease.lost.is_set():
        text = f"{task.folder} is gone, or another nnlo took it over while this one was away; ended all ranks"
        return Outcome("killed", text)
    start, reached, saved = standing(task.state)
    seconds = round(time.monotonic() - clock, 3)
    _record(
        task,
        Attempt(
            len(attempts.read(task.state)) + 1, started, _now(), seconds, socket.gethostname(),
            place.job.number if place.job else None, outcome.reason, outcome.sentence, start, reached, saved,
            task.run.parallel.ranks,
        ),
    )  # fmt: skip
    return outcome


def _record(task: Task, ended: Attempt) -> None:
    try:
        attempts.append(task.state, ended)
    except OSError as error:
        say(f"warning: attempt {ended.attempt} is not on record: {error}")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
