"""A sign of life that can be seen from other hosts: the time of a file, which its owner changes every few seconds."""

import os
import time
from contextlib import suppress
from pathlib import Path
from threading import Thread

GROUP_HEARTBEAT_INTERVAL_S = 5.0  # seconds
MAX_CREDITED_GAP_S = (
    1.0  # seconds between two looks that count at most: the one who looks may have been stopped
)


class Heartbeat(Thread):
    """Beat in a file for as long as this process lives."""

    def __init__(self, path: Path) -> None:
        super().__init__(daemon=True)
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        self.start()

    def run(self) -> None:
        """Beat; a disk may be away for a while."""
        while True:
            time.sleep(GROUP_HEARTBEAT_INTERVAL_S)
            with suppress(OSError):
                os.utime(self._path)


class HeartbeatMonitor:
    """How long somebody else's file has not changed, by our clock."""

    def __init__(self, path: Path) -> None:
        self._path, self._beat = path, 0
        self._looked, self.seconds = time.monotonic(), 0.0

    def poll(self) -> float:
        """Return the seconds of silence."""
        beat, now = self._beat, time.monotonic()
        with (
            suppress(OSError),
            self._path.open("rb") as file,
        ):  # NFS asks the server only when a file is opened
            self._beat = os.fstat(file.fileno()).st_mtime_ns
        self.seconds = (
            self.seconds + min(now - self._looked, MAX_CREDITED_GAP_S) if beat == self._beat else 0.0
        )
        self._looked = now
        return self.seconds
