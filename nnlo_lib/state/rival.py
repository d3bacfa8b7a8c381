"""Another owner of a run folder, watched for signs of life."""

import os
import time
from pathlib import Path

from nnlo_lib.state.claim import Claim

LEAP = 2.0  # seconds between two looks that count at most: this process may have been stopped


class Rival:
    """Whoever holds the lease at `path`. patience: seconds without a heartbeat, on our clock, that mean death."""

    def __init__(self, path: Path, patience: float) -> None:
        self._path, self._patience = path, patience
        self.content, self._beat = _look(path)
        self.claim = Claim.parse(self.content)
        self._looked, self._silent = time.monotonic(), 0.0
        self.is_alive = False

    def look(self) -> bool:
        """Look again; False if the lease is not this rival's any more. Raises FileNotFoundError if it is nobody's."""
        content, beat = _look(self._path)
        now = time.monotonic()
        self._silent = self._silent + min(now - self._looked, LEAP) if beat == self._beat else 0.0
        self.is_alive = self.is_alive or beat != self._beat
        self._looked, self._beat = now, beat
        return content == self.content

    @property
    def seen(self) -> float:
        """When it last gave a sign of life, in seconds of the epoch."""
        return self._beat / 1e9

    @property
    def is_dead(self) -> bool:
        """Whether it has ended, or has been silent for too long."""
        return self.claim.is_dead or self._silent > self._patience


def _look(path: Path) -> tuple[bytes, int]:
    """Return content and time of change; NFS asks the server only when a file is opened."""
    with path.open("rb") as file:
        return file.read(), os.fstat(file.fileno()).st_mtime_ns
