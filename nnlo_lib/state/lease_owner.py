"""What state/lease.json says: whose run folder this is."""

import json
import os
import time
import uuid
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from nnlo_lib.core.batch_system import BatchJob
from nnlo_lib.core.process_identity import ProcessIdentity

UNKNOWN = "1970-01-01T00:00:00+00:00"


@dataclass(frozen=True)
class LeaseOwner(ProcessIdentity):
    """owner: a name that nobody else has; job, scheduler: what the process belongs to; since: when it was written."""

    owner: str
    job: str | None
    scheduler: str | None
    since: str

    @classmethod
    def for_this_process(cls) -> "LeaseOwner":
        """Return a new claim of this process."""
        job, since = BatchJob.current(), datetime.now(UTC).isoformat(timespec="seconds")
        number, scheduler = (job.job_id, job.scheduler) if job else (None, None)
        return cls(
            **asdict(ProcessIdentity.current()),
            owner=uuid.uuid4().hex,
            job=number,
            scheduler=scheduler,
            since=since,
        )

    @classmethod
    def parse(cls, content: bytes) -> "LeaseOwner":
        """Read a claim; what a crash of its host left damaged is a claim of somebody unknown."""
        try:
            return cls(**json.loads(content))
        except (ValueError, TypeError):
            return cls("an unknown host", "", 0, 0, "", None, None, UNKNOWN)

    def write(self, path: Path) -> None:
        """Write the claim. Raises OSError."""
        path.write_text(json.dumps(asdict(self)))

    def is_of_same_job(self, other: "LeaseOwner") -> bool:
        """Whether both belong to one job of a scheduler: then the later one is its next run."""
        return self.job is not None and (self.scheduler, self.job) == (other.scheduler, other.job)

    def __str__(self) -> str:
        job = f" ({self.scheduler} job {self.job})" if self.job else ""
        return f"process {self.pid} on {self.host}{job}, since {self.since}"


MAX_CREDITED_LEASE_GAP_S = (
    2.0  # seconds between two looks that count at most: this process may have been stopped
)


class OwnerMonitor:
    """Whoever holds the lease at `path`. patience: seconds without a heartbeat, on our clock, that mean death."""

    def __init__(self, path: Path, patience: float) -> None:
        self._path, self._owner_timeout_s = path, patience
        self.content, self._heartbeat_ns = _read_lease(path)
        self.lease_owner = LeaseOwner.parse(self.content)
        self._polled_at, self._silence_s = time.monotonic(), 0.0
        self.has_shown_heartbeat = False

    def poll(self) -> bool:
        """Look again; False if the lease is not this rival's any more. Raises FileNotFoundError if it is nobody's."""
        content, beat = _read_lease(self._path)
        now = time.monotonic()
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
        """When it last gave a sign of life, in seconds of the epoch."""
        return self._heartbeat_ns / 1e9

    @property
    def is_dead(self) -> bool:
        """Whether it has ended, or has been silent for too long."""
        return self.lease_owner.is_dead or self._silence_s > self._owner_timeout_s


def _read_lease(path: Path) -> tuple[bytes, int]:
    """Return content and time of change; NFS asks the server only when a file is opened."""
    with path.open("rb") as file:
        return file.read(), os.fstat(file.fileno()).st_mtime_ns
