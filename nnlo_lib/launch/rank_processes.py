"""The ranks of this host, as processes: known by what they announce in a folder, ended through handles."""

import json
import os
import select
import signal
import time
from contextlib import suppress
from pathlib import Path

from nnlo_lib.core.process_identity import ProcessIdentity

KILL_TIMEOUT_S = 2  # seconds until a killed process is gone


class RankProcesses:
    """Handles on ranks; the number of one that has ended cannot become another process's while a handle is held."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._handles: dict[int, str] = {}
        self._poll = select.poll()
        self.registered: set[str] = set()

    def discover(self) -> None:
        """Open a handle on each rank that is new."""
        for path in self._folder.glob("[0-9]*"):
            if path.name not in self.registered:
                with suppress(OSError, ValueError, TypeError):  # half written, or ended already
                    self._open(path.name, ProcessIdentity(**json.loads(path.read_text())))

    def wait_for_exits(self, patience: float) -> list[str]:
        """Wait for so many seconds until a rank ends; return those that have."""
        handles = [handle for handle, _ in self._poll.poll(1000 * patience)]
        for handle in handles:
            self._poll.unregister(handle)
            os.close(handle)
        return [self._handles.pop(handle) for handle in handles]

    def kill(self) -> None:
        """End all that live, at once."""
        for handle in self._handles:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, signal.SIGKILL)

    def wait_then_kill(self, patience: float) -> None:
        """Wait for so many seconds until all have ended, then end those that are left."""
        self.discover()
        self._wait(patience)
        self.kill_and_wait()

    def kill_and_wait(self) -> None:
        """End all that live, and wait until they are gone."""
        self.kill()
        self._wait(KILL_TIMEOUT_S)

    @property
    def has_live_ranks(self) -> bool:
        """Whether any of this host has not ended, as far as was looked."""
        return bool(self._handles)

    def _wait(self, patience: float) -> None:
        end = time.monotonic() + patience
        while self._handles and (left := end - time.monotonic()) > 0:
            self.wait_for_exits(left)

    def _open(self, name: str, process: ProcessIdentity) -> None:
        self.registered.add(name)
        if process.is_local and not process.is_dead:
            handle = os.pidfd_open(process.pid)
            self._handles[handle] = name
            self._poll.register(handle, select.POLLIN)
