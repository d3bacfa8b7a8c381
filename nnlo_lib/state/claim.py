"""What state/lease.json says: whose run folder this is."""

import json
import uuid
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from nnlo_lib.state.process import Process
from nnlo_lib.state.scheduler import Job

UNKNOWN = "1970-01-01T00:00:00+00:00"


@dataclass(frozen=True)
class Claim(Process):
    """owner: a name that nobody else has; job, scheduler: what the process belongs to; since: when it was written."""

    owner: str
    job: str | None
    scheduler: str | None
    since: str

    @classmethod
    def fresh(cls) -> "Claim":
        """Return a new claim of this process."""
        job, since = Job.current(), datetime.now(UTC).isoformat(timespec="seconds")
        number, scheduler = (job.number, job.scheduler) if job else (None, None)
        return cls(
            **asdict(Process.own()), owner=uuid.uuid4().hex, job=number, scheduler=scheduler, since=since
        )

    @classmethod
    def parse(cls, content: bytes) -> "Claim":
        """Read a claim; what a crash of its host left damaged is a claim of somebody unknown."""
        try:
            return cls(**json.loads(content))
        except (ValueError, TypeError):
            return cls("an unknown host", "", 0, 0, "", None, None, UNKNOWN)

    def write(self, path: Path) -> None:
        """Write the claim. Raises OSError."""
        path.write_text(json.dumps(asdict(self)))

    def is_of_same_job(self, other: "Claim") -> bool:
        """Whether both belong to one job of a scheduler: then the later one is its next run."""
        return self.job is not None and (self.scheduler, self.job) == (other.scheduler, other.job)

    def __str__(self) -> str:
        job = f" ({self.scheduler} job {self.job})" if self.job else ""
        return f"process {self.pid} on {self.host}{job}, since {self.since}"
