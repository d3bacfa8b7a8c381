"""The rank processes of this host: discovered by the files they write to a folder, killed through pidfds."""

import json
import os
import select
import signal
import time
from contextlib import suppress
from pathlib import Path

from nnlo_lib.core.logging_setup import get_logger
from nnlo_lib.core.process_identity import ProcessIdentity
from nnlo_lib.core.process_state import ProcessState

logger = get_logger(__name__)

KILL_TIMEOUT_S = 2  # seconds to wait for killed processes to exit


class RankProcesses:
    """Handles (pidfds) on the ranks of this host; a pidfd refers to its rank even if the pid is reused.

    Attributes:
        registered: names of all ranks found in the folder, on other hosts too.
        parents: processes that started ranks of this host (hydra_pmi_proxy, slurmstepd).
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._handles: dict[int, str] = {}
        self._poll = select.poll()
        self.registered: set[str] = set()
        self._observed: set[str] = set()
        self.parents: set[ProcessIdentity] = set()

    def discover(self) -> None:
        """Open a handle on each rank that registered since the last call."""
        for path in self._folder.glob("[0-9]*"):
            if path.name not in self.registered:
                with suppress(OSError, ValueError, TypeError):  # half-written file, or exited rank
                    self._open(path.name, ProcessIdentity(**json.loads(path.read_text())))

    def wait_for_exits(self, patience: float) -> list[str]:
        """Wait up to `patience` seconds for a rank to exit; return the ranks that have exited."""
        handles = [handle for handle, _ in self._poll.poll(1000 * patience)]
        for handle in handles:
            self._poll.unregister(handle)
            os.close(handle)
        return [self._handles.pop(handle) for handle in handles]

    def kill(self) -> None:
        """Send SIGKILL to all live ranks."""
        for handle in self._handles:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, signal.SIGKILL)

    def wait_then_kill(self, patience: float) -> None:
        """Wait up to `patience` seconds for all ranks to exit, then kill the remaining ones."""
        self.discover()
        self._wait(patience)
        self.kill_and_wait()

    def kill_and_wait(self) -> None:
        """Send SIGKILL to all live ranks, and wait up to KILL_TIMEOUT_S until they have exited."""
        self.kill()
        self._wait(KILL_TIMEOUT_S)

    @property
    def has_live_ranks(self) -> bool:
        """Whether a discovered rank of this host has not been seen to exit."""
        return bool(self._handles)

    @property
    def have_all_exited(self) -> bool:
        """Whether all registered ranks were seen to exit; False if a rank is on another host."""
        return bool(self.registered) and self._observed == self.registered and not self._handles

    @property
    def lost_parent(self) -> str:
        """The process of a parent that ended before its ranks, as text; empty if all parents run."""
        lost = [parent for parent in self.parents if parent.is_dead] if self._handles else []
        return f"the process {lost[0].pid} that started the ranks on {lost[0].host}" if lost else ""

    def _wait(self, patience: float) -> None:
        end = time.monotonic() + patience
        while self._handles and (left := end - time.monotonic()) > 0:
            self.wait_for_exits(left)

    def _open(self, name: str, process: ProcessIdentity) -> None:
        # Ranks of other hosts are registered as well: the watchdog counts them before it forwards a signal.
        self.registered.add(name)
        if not process.is_local or process.is_dead:
            return
        if not process.is_own:
            # The folder can be shared: another user's attempt, or any number that a member of the group wrote.
            logger.warning(f"{self._folder / name}: process {process.pid} of another user is not signaled")
        else:
            handle = os.pidfd_open(process.pid)
            self._handles[handle] = name
            self._observed.add(name)
            self._poll.register(handle, select.POLLIN)
            if parent := ProcessState.of(process.pid).parent:  # 0 if the rank has exited meanwhile
                self.parents.add(ProcessIdentity.from_pid(parent))
