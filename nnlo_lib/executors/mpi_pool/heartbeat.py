"""Heartbeat that other hosts can observe: the modification time of a file, changed every few seconds."""

import os
import time
from contextlib import suppress
from pathlib import Path
from threading import Thread

GROUP_HEARTBEAT_INTERVAL_S = 5.0  # between two heartbeats
# Upper limit of the time that one check adds, because the checking process may have been suspended.
MAX_CREDITED_GAP_S = 1.0


class Heartbeat(Thread):
    """Thread that touches a file as long as this process lives."""

    def __init__(self, path: Path) -> None:
        super().__init__(daemon=True)
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        self.start()

    def run(self) -> None:
        """Touch the file periodically; ignore errors, because the file system may be unavailable for a while."""
        while True:
            time.sleep(GROUP_HEARTBEAT_INTERVAL_S)
            with suppress(OSError):
                os.utime(self._path)


class HeartbeatMonitor:
    """Measures by the local clock how long another process's heartbeat file has not changed."""

    def __init__(self, path: Path) -> None:
        self._path, self._beat = path, 0
        self._polled_at, self.seconds = time.monotonic(), 0.0

    def poll(self) -> float:
        """Return the seconds without a change of the file; each check adds at most MAX_CREDITED_GAP_S."""
        beat, now = self._beat, time.monotonic()
        # The file is opened, because NFS queries the server only then.
        with suppress(OSError), self._path.open("rb") as file:
            self._beat = os.fstat(file.fileno()).st_mtime_ns
        self.seconds = (
            self.seconds + min(now - self._polled_at, MAX_CREDITED_GAP_S) if beat == self._beat else 0.0
        )
        self._polled_at = now
        return self.seconds
