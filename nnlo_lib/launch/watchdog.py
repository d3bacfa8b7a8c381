"""The launcher's second pair of eyes: who ends first, who must be told to stop, and that nobody is left."""

import signal
import subprocess
import time
from threading import Event, Thread

from nnlo_lib.launch.rank_processes import RankProcesses
from nnlo_lib.launch.signals import SignalSource

RANK_POLL_INTERVAL_S = 0.1  # seconds between two looks
EXIT_GRACE_S = 10.0  # seconds that ranks may outlive their launcher
MIN_START_TIMEOUT_S = (
    60.0  # seconds in which ranks may come up; after them they are told to stop even if not all have
)
MAX_START_TIMEOUT_S = (
    180.0  # seconds after which none will, whatever the file system: a start is then tried again
)


class Watchdog(Thread):
    """Watch `expected` ranks of a launcher (`child`) until it and they have ended.

    first: those that ended first; a launcher that then kills the others may name the wrong one. signals: are passed
    on to the ranks, once all can hear them. lost: once set, all must end at once. timeout: seconds, one to
    three minutes, in which ranks must come up; given_up: they had not.
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
        """Look until all is over, then end who is left."""
        while not self._is_over():
            self._forward_signal()
            self._kill_if_lease_lost()
            self._abort_stalled_start()
            ended = self._ranks.wait_for_exits(RANK_POLL_INTERVAL_S)
            self.first_exits = self.first_exits or ended
        self._ranks.kill_and_wait()

    def _is_over(self) -> bool:
        if not self._lease_lost.is_set():  # else those that are new are another launcher's
            self._ranks.discover()
        if self._child.poll() is None:
            return False
        self._launcher_ended_at = self._launcher_ended_at or time.monotonic()
        return not self._ranks.has_live_ranks or time.monotonic() - self._launcher_ended_at > EXIT_GRACE_S

    def _forward_signal(self) -> None:
        """Pass on a wish to stop, as USR1: TERM ends Open MPI's ranks before they can save, USR2 MPICH's launcher."""
        ready = len(self._ranks.registered) >= self._expected or self._elapsed_s > MIN_START_TIMEOUT_S
        if self._signals.first and ready and not self._signal_forwarded:
            self._child.send_signal(signal.SIGUSR1)
            self._signal_forwarded = True

    def _kill_if_lease_lost(self) -> None:
        """End ranks that may not write any more, after their launcher.

        A srun that sees them end would end the step of its number, which is the next attempt's if the job was requeued.
        """
        if self._lease_lost.is_set():
            self._child.kill()
            self._ranks.kill()

    def _abort_stalled_start(self) -> None:
        """End a start that hangs: MPI waits for ever for a rank that has ended before it could be connected."""
        if self._ranks.registered or self._elapsed_s < self._timeout:
            return
        if not self.start_timed_out:
            self._child.terminate()
        elif self._elapsed_s > self._timeout + EXIT_GRACE_S:
            self._child.kill()
        self.start_timed_out = True

    @property
    def _elapsed_s(self) -> float:
        return time.monotonic() - self._begun
