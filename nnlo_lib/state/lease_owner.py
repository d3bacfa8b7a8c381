"""Content of state/lease.json: the owner of the run folder."""

import json
import os
import time
import uuid
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

from nnlo_lib.core.batch_system import BatchJob
from nnlo_lib.core.json_text import load_json
from nnlo_lib.core.process_identity import ProcessIdentity
from nnlo_lib.core.timestamp import timestamp

# A valid time, from which crash_recovery can compute the duration of an attempt.
UNKNOWN = "1970-01-01T00:00:00+00:00"


@dataclass(frozen=True)
class LeaseOwner(ProcessIdentity):
    """A process that claims a lease.

    Attributes:
        owner: unique name of the claim.
        job: id of the process's batch job, if any.
        scheduler: name of the batch system, if any.
        since: time of the claim, ISO 8601.
        restarts: how often the scheduler had queued the job again; 0 if that is unknown.
    """

    owner: str
    job: str | None
    scheduler: str | None
    since: str
    restarts: int = 0

    @classmethod
    def for_this_process(cls) -> "LeaseOwner":
        """Return a new claim by this process."""
        job, since = BatchJob.current(), timestamp()
        number, scheduler = (job.job_id, job.scheduler) if job else (None, None)
        return cls(
            **asdict(ProcessIdentity.current()),
            owner=uuid.uuid4().hex,
            job=number,
            scheduler=scheduler,
            since=since,
            restarts=BatchJob.current_restarts(),
        )

    @classmethod
    def parse(cls, content: bytes) -> "LeaseOwner":
        """Parse a claim; a claim damaged by a crash of its host yields an unknown owner."""
        try:
            return cls(**load_json(content))
        except (ValueError, TypeError):
            return cls("an unknown host", "", 0, 0, "", None, None, UNKNOWN)

    def write(self, path: Path) -> None:
        """Write the claim as JSON. Raises OSError."""
        path.write_text(json.dumps(asdict(self)))

    def is_of_same_job(self, other: "LeaseOwner") -> bool:
        """Return True if both belong to the same batch job; the later one is then the job after a requeue."""
        return self.job is not None and (self.scheduler, self.job) == (other.scheduler, other.job)

    def is_of_earlier_run(self, other: "LeaseOwner") -> bool:
        """Return True if `other` belongs to a later run of the same batch job, which ended the run of this process."""
        return self.is_of_same_job(other) and self.restarts < other.restarts

    def __str__(self) -> str:
        job = f"{self.scheduler} job {self.job}, " if self.job else ""
        return f"process {self.pid} on {self.host} ({job}since {self.since})"


# Upper limit of the time that one poll adds to the silence, because this process may have been suspended.
MAX_CREDITED_LEASE_GAP_S = 2.0
# Seconds without a heartbeat after which the scheduler is asked whether the owner's job has ended. A live owner of a
# job with the same number in another cluster shows a heartbeat before.
JOB_CHECK_AFTER_S = 7.5


class OwnerMonitor:
    """Monitors the current owner of the lease at `path`.

    Args:
        path: the lease file.
        patience: seconds without a heartbeat, on this process's clock, after which the owner counts as dead.

    Attributes:
        content: bytes of the lease file at construction.
        lease_owner: the parsed owner.
        has_shown_heartbeat: whether a heartbeat was seen since construction; the owner was then alive.
    """

    def __init__(self, path: Path, patience: float) -> None:
        self._path, self._owner_timeout_s = path, patience
        self.content, self._heartbeat_ns = _read_lease(path)
        self.lease_owner = LeaseOwner.parse(self.content)
        self._polled_at, self._silence_s = time.monotonic(), 0.0
        self.has_shown_heartbeat = False

    def poll(self) -> bool:
        """Read the lease; return False if the owner changed. Raises FileNotFoundError if it was released."""
        content, beat = _read_lease(self._path)
        now = time.monotonic()
        # The heartbeat is compared with the previous one, not with a clock: the clocks of hosts may differ.
        self._silence_s = (
            self._silence_s + min(now - self._polled_at, MAX_CREDITED_LEASE_GAP_S)
            if beat == self._heartbeat_ns
            else 0.0
        )
        self.has_shown_heartbeat = self.has_shown_heartbeat or beat != self._heartbeat_ns
        self._polled_at, self._heartbeat_ns = now, beat
        return content == self.content

    @property
    def last_heartbeat(self) -> float:
        """Time of the owner's last heartbeat, in seconds since 1970."""
        return self._heartbeat_ns / 1e9

    @property
    def is_dead(self) -> bool:
        """Whether the owner's process or job has ended, or sent no heartbeat for longer than the timeout."""
        silent = self._silence_s > self._owner_timeout_s
        return (
            self.lease_owner.is_dead
            or silent
            or (self._silence_s > JOB_CHECK_AFTER_S and self._job_has_ended)
        )

    @cached_property
    def _job_has_ended(self) -> bool:
        # Asked once, because the scheduler may be overloaded. A process of this host can be observed itself.
        owner = self.lease_owner
        job = None if owner.is_local else BatchJob.from_id(owner.scheduler, owner.job)
        return job is not None and job.has_ended()


def _read_lease(path: Path) -> tuple[bytes, int]:
    """Return content and modification time (ns); opening the file makes NFS query the server."""
    with path.open("rb") as file:
        return file.read(), os.fstat(file.fileno()).st_mtime_ns
