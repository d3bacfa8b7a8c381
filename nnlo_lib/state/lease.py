"""Lease of a run folder in state/lease.json: a launcher's exclusive right, renewed by a heartbeat.

The lease of a dead owner, or of an earlier run of the same batch job, is taken over.
"""

import errno
import json
import os
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from threading import Event, Thread

from nnlo_lib.batch import BatchJob
from nnlo_lib.config.paths import StatePaths
from nnlo_lib.core.atomic_file import load_json
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.file_access import cause_of
from nnlo_lib.core.file_lock import exclusive_lock
from nnlo_lib.core.logging_setup import get_logger
from nnlo_lib.core.process import ProcessIdentity
from nnlo_lib.core.text_format import timestamp

logger = get_logger(__name__)

HEARTBEAT_INTERVAL_S = 5.0
OWNER_TIMEOUT_S = 30.0  # without a heartbeat; then an owner counts as dead
LEASE_POLL_INTERVAL_S = 0.5
# Upper limit of the time that one poll adds to the silence, because this process may have been suspended.
MAX_CREDITED_LEASE_GAP_S = 2.0
# Seconds without a heartbeat after which the scheduler is asked whether the owner's job has ended. A live owner of a
# job with the same number in another cluster shows a heartbeat before.
JOB_CHECK_AFTER_S = 7.5
# What the kernel, NFS servers and FUSE report on a file system without hard links, and a folder with a limit of them.
NO_HARD_LINKS = {
    errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EACCES, errno.EINVAL,
}  # fmt: skip
# A valid time, from which attempt_recovery can compute the duration of an attempt.
UNKNOWN = "1970-01-01T00:00:00+00:00"


@dataclass(frozen=True)
class LeaseOwner(ProcessIdentity):
    """A process that claims a lease."""

    owner: str  # unique name of the claim
    job: str | None
    scheduler: str | None
    since: str  # time of the claim, ISO 8601
    restarts: int = 0  # how often the scheduler had queued the job again; 0 if that is unknown
    # Of the leased folder; a copy has neither. A file system of FUSE may change the number, and another host may see
    # another path; 0 and empty if unknown.
    inode: int = 0
    folder: str = ""

    @classmethod
    def for_this_process(cls) -> "LeaseOwner":
        """Return a new claim by this process."""
        job, since = BatchJob.current(), timestamp()
        number, scheduler = (job.job_id, job.scheduler) if job else (None, None)
        me, restarts = ProcessIdentity.current(), BatchJob.current_restarts()
        return cls(me.host, me.room, me.pid, me.started, uuid.uuid4().hex, number, scheduler, since, restarts)

    @classmethod
    def parse(cls, content: bytes) -> "LeaseOwner":
        """Parse a claim; a claim damaged by a crash of its host yields an unknown owner."""
        try:
            return cls(**load_json(content))
        except (ValueError, TypeError):
            return cls("an unknown host", "", 0, 0, "", None, None, UNKNOWN)

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))

    def __str__(self) -> str:
        job = f"{self.scheduler} job {self.job}, " if self.job else ""
        return f"process {self.pid} on {self.host} ({job}since {self.since})"


class OwnerMonitor:
    """Monitors the current owner of the lease at `path`.

    `patience`: seconds without a heartbeat, on this process's clock, after which the owner counts as dead.

    Attributes:
        content: bytes of the lease file at construction.
        last_heartbeat: time of the owner's last heartbeat, in seconds since 1970.
        has_shown_heartbeat: whether a heartbeat was seen since construction; the owner was then alive.
    """

    def __init__(self, path: Path, patience: float) -> None:
        self._path, self._owner_timeout_s = path, patience
        self.content, self.last_heartbeat = _read_lease(path)
        self.lease_owner = LeaseOwner.parse(self.content)
        self._polled_at, self._silence_s = time.monotonic(), 0.0
        self.has_shown_heartbeat = False

    def poll(self) -> bool:
        """Read the lease; return False if the owner changed. Raises FileNotFoundError if it was released."""
        content, beat = _read_lease(self._path)
        now = time.monotonic()
        # The heartbeat is compared with the previous one, not with a clock: the clocks of hosts may differ.
        if beat == self.last_heartbeat:
            self._silence_s += min(now - self._polled_at, MAX_CREDITED_LEASE_GAP_S)
        else:
            self._silence_s, self.has_shown_heartbeat = 0.0, True
        self._polled_at, self.last_heartbeat = now, beat
        return content == self.content

    @property
    def is_dead(self) -> bool:
        """Whether the owner's process or job has ended, or sent no heartbeat for longer than the timeout."""
        if self.lease_owner.is_dead or self._silence_s > self._owner_timeout_s:
            return True
        return self._silence_s > JOB_CHECK_AFTER_S and self._job_has_ended

    @cached_property
    def _job_has_ended(self) -> bool:
        # Asked once, because the scheduler may be overloaded. A process of this host can be observed itself.
        owner = self.lease_owner
        job = None if owner.is_local else BatchJob.from_id(owner.scheduler, owner.job)
        return job is not None and job.has_ended()


def _read_lease(path: Path) -> tuple[bytes, float]:
    """Return content and modification time; opening the file makes NFS query the server."""
    with path.open("rb") as file:
        return file.read(), os.fstat(file.fileno()).st_mtime


class LeaseHeldError(Exception):
    """Another owner still holds the lease, and the caller stopped waiting."""


class Lease:
    """The lease of a run's `state/` folder; a background thread renews it every `beat` seconds.

    `lost` is set if the lease belongs to another owner, is gone, or was not renewed for `patience` seconds, after which an
    owner counts as dead.
    """

    def __init__(
        self, folder: Path, beat: float = HEARTBEAT_INTERVAL_S, patience: float = OWNER_TIMEOUT_S
    ) -> None:
        self._path = StatePaths(folder).lease
        self._heartbeat_interval_s, self._owner_timeout_s = beat, patience
        self._this_owner = LeaseOwner.for_this_process()
        self._released = Event()
        self._heartbeat_thread = Thread(target=self._run_heartbeat, daemon=True)
        self.lost = Event()

    def acquire(self, patient: bool, give_up: Callable[[], bool]) -> OwnerMonitor | None:
        """Acquire the lease; return the previous owner if its lease was taken over, else None.

        If `patient`, wait while another owner is alive, until `give_up` returns True.

        Raises:
            UserError: if another owner is alive and `patient` is False, or the lease cannot be written.
            LeaseHeldError: if `give_up` ended the wait.
        """
        evicted = None
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            while not self._try_create():
                with suppress(FileNotFoundError):  # released between two checks
                    other = OwnerMonitor(self._path, self._owner_timeout_s)
                    evicted = self._wait_for_owner(other, patient, give_up) or evicted
        except OSError as error:
            raise UserError(
                f"cannot write {self._path}, the lease that gives one launcher exclusive access to the folder: {cause_of(error, self._path)}"
            ) from error
        # The evicted owner may still run on a node that the scheduler lost. It notices the loss at its next
        # heartbeat and exits.
        if evicted and not evicted.is_dead:
            time.sleep(1.4 * self._heartbeat_interval_s)
        return evicted

    def release(self) -> None:
        """Stop the heartbeat and delete the lease file, if the lease is still held."""
        self._released.set()
        self._heartbeat_thread.join()
        with suppress(OSError):
            if self._is_held():
                self._path.unlink()

    def _wait_for_owner(
        self, other: OwnerMonitor, patient: bool, give_up: Callable[[], bool]
    ) -> OwnerMonitor | None:
        """Wait until the other owner no longer holds the lease; return the owner if its lease was taken over.

        Raises as `acquire` does, and FileNotFoundError if the lease was released.
        """
        # After a requeue, the scheduler has given up the job's earlier run, so its lease is taken over at
        # once. A user's command does so only if the scheduler has counted the requeue: another command of the
        # same interactive job may hold the lease.
        claim, me = other.lease_owner, self._this_owner
        folder = self._path.parents[1]
        is_same_job = me.job is not None and (me.scheduler, me.job) == (claim.scheduler, claim.job)
        is_requeued = is_same_job and (patient or claim.restarts < me.restarts)
        logged = False
        while other.poll():
            if other.is_dead or is_requeued:
                return other if self._take_over(other) else None
            # A lease that a crash left behind must not refuse a command: only a heartbeat proves a live owner.
            if other.has_shown_heartbeat and not patient:
                how = f"kill {claim.pid}" + (f", or cancel job {claim.job}" if claim.job else "")
                raise UserError(
                    f"{folder} is being written by {claim}; wait until it exits, or stop it (on {claim.host}: {how}) "
                    "and run the same command again"
                )
            if give_up():
                raise LeaseHeldError(f"{folder}: the lease is still held by {claim}")
            if not logged:
                logger.info(
                    f"{folder}: the lease is held by {claim}; waiting until it is released, or "
                    f"has no heartbeat for {self._owner_timeout_s:.0f} s"
                )
                logged = True
            time.sleep(LEASE_POLL_INTERVAL_S)
        return None

    def _take_over(self, other: OwnerMonitor) -> bool:
        """Remove the other owner's lease; return False if a third owner was faster."""
        lock = self._path.with_name(f".{self._path.name}.lock")
        try:
            # Otherwise, a launcher that is late could remove the lease of the third owner for a moment, in which a
            # fourth one would create its own.
            with exclusive_lock(lock, f"taking over {self._path}", self._owner_timeout_s):
                return self._path.read_bytes() == other.content and self._remove(other)
        except UserError:  # the file system has no locks
            return self._remove(other)

    def _remove(self, other: OwnerMonitor) -> bool:
        """Remove the other owner's lease; if a third owner was faster, restore the file and return False."""
        aside = self._path.with_name(f".{self._path.name}.{self._this_owner.owner}.evicted")
        # Of several launchers that take over the same lease, only one can rename the file.
        self._path.rename(aside)
        try:
            # Since the last poll, another launcher may have taken over and created its own lease.
            if aside.read_bytes() != other.content:
                with suppress(FileExistsError):
                    _link_or_create(aside, self._path)
                return False
        finally:
            aside.unlink()
        ended = "exited or stopped its heartbeat without releasing it"
        what = ended if other.is_dead else "is an earlier run of this batch job"
        logger.warning(f"{self._path.parents[1]}: took over the lease of {other.lease_owner}, which {what}")
        return True

    def _try_create(self) -> bool:
        part = self._path.with_name(f".{self._path.name}.{self._this_owner.owner}")
        folder = self._path.parent.resolve()
        self._this_owner = replace(self._this_owner, inode=folder.stat().st_ino, folder=str(folder))
        try:
            self._this_owner.write(part)
            _link_or_create(part, self._path)
        except FileExistsError:
            if not self._is_held():  # NFS may repeat a request that has already succeeded
                return False
        finally:
            with suppress(OSError):
                part.unlink(missing_ok=True)
        self._heartbeat_thread.start()
        return True

    def _is_held(self) -> bool:
        return LeaseOwner.parse(self._path.read_bytes()) == self._this_owner

    def _run_heartbeat(self) -> None:
        """Renew the lease until it is released or lost; set `lost` in the latter case."""
        renewed_at = time.monotonic()
        while not self._released.wait(self._heartbeat_interval_s) and not self.lost.is_set():
            try:
                if not self._is_held():
                    self.lost.set()
                    return  # The file belongs to the new owner, whose heartbeat this process must not fake.
                os.utime(self._path)
                renewed_at = time.monotonic()
            except FileNotFoundError:
                self.lost.set()
            except OSError:
                # Short outages are tolerated; after the timeout, other launchers count this owner as dead.
                if time.monotonic() - renewed_at > self._owner_timeout_s:
                    self.lost.set()


def _link_or_create(complete: Path, lease: Path) -> None:
    """Give a complete file the name of the lease. Raises FileExistsError if there is a lease."""
    try:
        os.link(complete, lease)
    except OSError as error:
        if error.errno not in NO_HARD_LINKS:
            raise
        # Another launcher may read the file before it is complete; it then waits for a heartbeat, as for a live owner.
        with lease.open("xb") as file:
            file.write(complete.read_bytes())
