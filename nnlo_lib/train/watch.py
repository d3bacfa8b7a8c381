"""See which rank of this host ends first: a launcher that kills the others may name the wrong one."""

import json
import os
import select
import socket
import threading
from pathlib import Path


class Watch(threading.Thread):
    """Wait for the ranks that announce themselves in `folder`; `first` becomes those that ended first."""

    def __init__(self, folder: Path, ranks: int) -> None:
        super().__init__(daemon=True)
        self._folder, self._ranks = folder, ranks
        self._over = threading.Event()
        self.first: list[str] = []

    def run(self) -> None:
        """Open a handle on each rank as it appears, until one ends."""
        poll, ranks = select.poll(), dict[int, str]()
        while not self._over.is_set() and not self.first:
            for handle, rank in self._newcomers(set(ranks.values())):
                ranks[handle] = rank
                poll.register(handle, select.POLLIN)
            patience = 1000 if len(ranks) == self._ranks else 100  # milliseconds
            self.first = [ranks[handle] for handle, _ in poll.poll(patience)]
        for handle in ranks:
            os.close(handle)

    def stop(self) -> list[str]:
        """End the watch and return the ranks that ended first, if any did."""
        self._over.set()
        self.join(timeout=2)
        return self.first

    def _newcomers(self, known: set[str]) -> list[tuple[int, str]]:
        found = []
        for path in self._folder.glob("[0-9]*"):
            try:
                where = json.loads(path.read_text())
                if path.name not in known and where["host"] == socket.gethostname():
                    found.append((os.pidfd_open(where["pid"]), path.name))
            except (OSError, ValueError):  # half written, or ended already
                continue
        return found
