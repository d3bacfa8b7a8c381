"""Watchdog of a launch: records first exits, forwards stop signals, kills ranks that outlive the launcher."""

import signal
import subprocess
import time
from threading import Event, Thread

from nnlo_lib.launch.rank_processes import RankProcesses
from nnlo_lib.launch.signals import SignalSource

RANK_POLL_INTERVAL_S = 0.1  # seconds between two checks
EXIT_GRACE_S = 10.0  # seconds for which ranks may outlive their launcher
# Seconds for all ranks to register; then a stop signal is forwarded even if some ranks are missing.
MIN_START_TIMEOUT_S = 60.0
MAX_START_TIMEOUT_S = 180.0  # seconds after which a start is aborted, even on a slow file system


class Watchdog(Thread):
    """Watches the launcher process and its ranks until all have exited.

    Args:
        ranks: handles on the ranks of this host.
        expected: number of rank processes; signals are forwarded when all of them have registered.
        child: the launcher process (mpiexec, srun).
        signals: stop signals sent to this process.
        lost: set when the lease is lost; launcher and ranks are then killed.
        timeout: seconds in which a rank must start, clipped to MIN_START_TIMEOUT_S ... MAX_START_TIMEOUT_S.

    Attributes:
        first_exits: ranks that exited first; a launcher that then kills the others may report a wrong rank.
        start_timed_out: whether no rank started in time.
    """

    def __init__(
        self, ranks: RankProcesses, expected: int, child: "subprocess.Popen[bytes]", signals: SignalSource, lost: Event,
        timeout: float,
    ) -> None:  # fmt: skip
        super().__init__(daemon=True)
        self._ranks, self._expected, self._child = ranks, expected, child
        self._signals, self._lease_lost = signals, lost
        self._begun, self._launcher_ended_at = time.monotonic(), 0.0
        self._signal_forwarded, self._timeout = (
            False,
            min(max(timeout, MIN_START_TIMEOUT_S), MAX_START_TIMEOUT_S),
        )
        self.first_exits: list[str] = []
        self.start_timed_out = False

    def run(self) -> None:
        """Watch until the launcher and the ranks have exited, then kill the remaining ranks."""
        while not self._is_over():
            self._forward_signal()
            self._kill_if_lease_lost()
            self._abort_stalled_start()
            ended = self._ranks.wait_for_exits(RANK_POLL_INTERVAL_S)
            # Only the first exits point to the cause: the launcher or a lost peer ends the other ranks.
            self.first_exits = self.first_exits or ended
        self._ranks.kill_and_wait()

    def _is_over(self) -> bool:
        if not self._lease_lost.is_set():  # after a loss, new rank files belong to another launcher
            self._ranks.discover()
        if self._child.poll() is None:
            return False
        self._launcher_ended_at = self._launcher_ended_at or time.monotonic()
        return not self._ranks.has_live_ranks or time.monotonic() - self._launcher_ended_at > EXIT_GRACE_S

    def _forward_signal(self) -> None:
        """Forward the first stop signal to the launcher process, as SIGUSR1, when the ranks are ready.

        SIGTERM would end Open MPI's ranks before they can save, and SIGUSR2 would end MPICH's launcher.
        """
        ready = len(self._ranks.registered) >= self._expected or self._elapsed_s > MIN_START_TIMEOUT_S
        if self._signals.first and ready and not self._signal_forwarded:
            self._child.send_signal(signal.SIGUSR1)
            self._signal_forwarded = True

    def _kill_if_lease_lost(self) -> None:
        """Kill the launcher, then the ranks, if the lease of the run folder is lost.

        The launcher is killed first: an srun that sees its ranks exit would end the Slurm step with its
        number. If the job was requeued, that step belongs to the next attempt.
        """
        if self._lease_lost.is_set():
            self._child.kill()
            self._ranks.kill()

    def _abort_stalled_start(self) -> None:
        """Terminate the launcher, and later kill it, if no rank has registered in time.

        MPI waits forever for a rank that exited before it was connected.
        """
        if self._ranks.registered or self._elapsed_s < self._timeout:
            return
        if not self.start_timed_out:
            # The first signal lets the launcher clean up; a launcher that hangs, too, is killed later.
            self._child.terminate()
        elif self._elapsed_s > self._timeout + EXIT_GRACE_S:
            self._child.kill()
        self.start_timed_out = True

    @property
    def _elapsed_s(self) -> float:
        return time.monotonic() - self._begun
