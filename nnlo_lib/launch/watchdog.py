"""The rank processes of this host, and the thread that watches them and their launcher.

Ranks are discovered by the files that they write to a folder, and killed through pidfds.
"""

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread

from nnlo_lib.core.logging_setup import get_logger
from nnlo_lib.core.process import ProcessIdentity, ProcessState
from nnlo_lib.launch.stop_request import SignalSource

logger = get_logger(__name__)

KILL_TIMEOUT_S = 2  # for killed processes to exit
RANK_POLL_INTERVAL_S = 0.1
EXIT_GRACE_S = 10.0  # seconds for which ranks may outlive their launcher, or the process that started them
# Seconds for which the launcher may outlive its ranks, and ranks the first failure: srun can wait for slurmctld.
LINGER_TIMEOUT_S = 30.0
# Seconds for all ranks to register; then a stop signal is forwarded even if some ranks are missing.
MIN_START_TIMEOUT_S = 60.0
MAX_START_TIMEOUT_S = 180.0  # seconds after which a start is aborted, even on a slow file system


class RankProcesses:
    """Handles (pidfds) on the ranks of this host; a pidfd refers to its rank even if the pid is reused.

    `registered` has the names of all ranks found in the folder, on other hosts too.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._handles: dict[int, str] = {}
        self._poll = select.poll()
        self.registered: set[str] = set()
        self._observed: set[str] = set()  # those on this host
        self._parents: set[ProcessIdentity] = set()  # hydra_pmi_proxy or slurmstepd of this host

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

    def kill(self, patience: float = 0.0) -> None:
        """Send SIGKILL to all live ranks, and wait up to `patience` seconds until they have exited."""
        for handle in self._handles:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        self._wait(patience)

    def wait_then_kill(self, patience: float) -> None:
        """Wait up to `patience` seconds for all ranks to exit, then kill the remaining ones."""
        self.discover()
        self._wait(patience)
        self.kill(KILL_TIMEOUT_S)

    @property
    def has_live_ranks(self) -> bool:
        """Whether a discovered rank of this host has not been seen to exit."""
        return bool(self._handles)

    @property
    def have_all_exited(self) -> bool:
        """Whether all registered ranks were seen to exit; False if a rank is on another host."""
        return not self._handles and self._observed == self.registered

    @property
    def lost_parent(self) -> str:
        """The process of a parent that ended before its ranks, as text; empty if all parents run."""
        lost = [parent for parent in self._parents if parent.is_dead] if self._handles else []
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
            return
        handle = os.pidfd_open(process.pid)
        self._handles[handle] = name
        self._observed.add(name)
        self._poll.register(handle, select.POLLIN)
        if parent := ProcessState.of(process.pid).parent:  # 0 if the rank has exited meanwhile
            self._parents.add(ProcessIdentity.from_pid(parent))


class Watchdog(Thread):
    """Watches the launcher process and its ranks until all have exited.

    Args:
        expected: number of rank processes; signals are forwarded when all of them have registered.
        lost: set when the lease is lost; launcher and ranks are then killed.
        timeout: seconds in which a rank must start, clipped to MIN_START_TIMEOUT_S ... MAX_START_TIMEOUT_S.

    Attributes:
        has_failed: returns True if a rank has reported a failure, after which all ranks have to end.
        waits_for_step: returns True while srun waits until other steps of the job leave it the resources; the ranks' time to
            start begins after it.
        first_exits: ranks that exited first; a launcher that then kills the others may report a wrong rank.
        lost_parent: process that started ranks and ended EXIT_GRACE_S before them; else empty.
        outlived_ranks: whether the launcher process did not exit within LINGER_TIMEOUT_S after its ranks.
    """

    def __init__(
        self, ranks: RankProcesses, expected: int, child: "subprocess.Popen[bytes]", signals: SignalSource, lost: Event,
        timeout: float,
    ) -> None:  # fmt: skip
        super().__init__(daemon=True)
        self._ranks, self._expected, self._child = ranks, expected, child
        self._signals, self._lease_lost = signals, lost
        self._signal_forwarded = False
        self._since: dict[str, float] = {}  # when each condition of `_seconds` began to hold
        self.start_timeout = min(max(timeout, MIN_START_TIMEOUT_S), MAX_START_TIMEOUT_S)
        self.first_exits: list[str] = []
        self.start_timed_out = self.outlived_ranks = False
        self.lost_parent = ""
        self.has_failed: Callable[[], bool] = bool
        self.waits_for_step: Callable[[], bool] = bool

    def run(self) -> None:
        """Watch until the launcher and the ranks have exited, then kill the remaining ranks."""
        while not self._is_over():
            self._forward_signal()
            self._kill_hopeless_launch()
            self._end_idle_launcher()
            ended = self._ranks.wait_for_exits(RANK_POLL_INTERVAL_S)
            # Only the first exits point to the cause: the launcher or a lost peer ends the other ranks.
            self.first_exits = self.first_exits or ended
        self._ranks.kill(KILL_TIMEOUT_S)

    def _is_over(self) -> bool:
        if not self._lease_lost.is_set():  # after a loss, new rank files belong to another launcher
            self._ranks.discover()
        ended_s = self._seconds("launcher ended", self._child.poll() is not None)
        return self._child.poll() is not None and (not self._ranks.has_live_ranks or ended_s > EXIT_GRACE_S)

    def _forward_signal(self) -> None:
        """Forward the first stop signal to the launcher process, as SIGUSR1, when the ranks are ready.

        SIGTERM would end Open MPI's ranks before they can save, and SIGUSR2 would end MPICH's launcher.
        """
        is_waiting = self.waits_for_step()
        started_s = self._seconds("started", not is_waiting)
        ready = len(self._ranks.registered) >= self._expected or started_s > MIN_START_TIMEOUT_S
        if self._signals.first and (ready or is_waiting) and not self._signal_forwarded:
            self._child.send_signal(signal.SIGUSR1)
            self._signal_forwarded = True

    def _kill_hopeless_launch(self) -> None:
        """Kill the launcher, then the ranks, if the lease of the run folder is lost, or if they do not end by themselves.

        Ranks in a system call may outlive another rank's failure. Ranks whose starter has ended would train on without
        output and without an end, and the launcher may not notice.

        The launcher is killed first: an srun that sees its ranks exit would end the Slurm step with its number. If the
        job was requeued, that step belongs to the next attempt.
        """
        lost = self._ranks.lost_parent
        is_orphaned = self._seconds("parent lost", bool(lost)) > EXIT_GRACE_S
        self.lost_parent = lost if is_orphaned else self.lost_parent
        has_lingered = self._seconds("failed", self.has_failed()) > LINGER_TIMEOUT_S
        if self._lease_lost.is_set() or is_orphaned or has_lingered:
            self._child.kill()
            self._ranks.kill()

    def _end_idle_launcher(self) -> None:
        """Terminate a launcher, which then cleans up, and kill it after EXIT_GRACE_S, if it does not do its work.

        No rank has registered in time: MPI waits forever for a rank that exited before it was connected. Or all ranks have
        exited, but the launcher waits, as for output of a background process.
        """
        registered = bool(self._ranks.registered)
        exited_s = self._seconds("ranks exited", registered and self._ranks.have_all_exited)
        started_s = self._seconds("started", not self.waits_for_step())
        overdue_s = exited_s - LINGER_TIMEOUT_S if registered else started_s - self.start_timeout
        if overdue_s <= 0:
            return
        if not (self.outlived_ranks if registered else self.start_timed_out):
            self._child.terminate()
        elif overdue_s > EXIT_GRACE_S:
            self._child.kill()
        if registered and not self.outlived_ranks:
            logger.warning(
                f"the launcher (process {self._child.pid}) is ended, because it did not exit within {LINGER_TIMEOUT_S:.0f} s "
                "after its ranks; a process that a rank started may still have its output open"
            )
        self.start_timed_out |= not registered
        self.outlived_ranks |= registered

    def _seconds(self, name: str, holds: bool) -> float:
        """Return for how many seconds a condition has held; 0 if it does not hold now."""
        if not holds:
            self._since.pop(name, None)
            return 0.0
        now = time.monotonic()
        return now - self._since.setdefault(name, now)
