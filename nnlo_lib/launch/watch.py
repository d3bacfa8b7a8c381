"""The launcher's second pair of eyes: who ends first, who must be told to stop, and that nobody is left."""

import signal
import subprocess
import time
from threading import Event, Thread

from nnlo_lib.launch.ranks import Ranks
from nnlo_lib.launch.signals import Heard

GLANCE = 0.1  # seconds between two looks
PATIENCE = 10.0  # seconds that ranks may outlive their launcher
STARTING = 60.0  # seconds in which ranks may come up; after them they are told to stop even if not all have
LATEST = 180.0  # seconds after which none will, whatever the file system: a start is then tried again


class Watch(Thread):
    """Watch `expected` ranks of a launcher (`child`) until it and they have ended.

    first: those that ended first; a launcher that then kills the others may name the wrong one. signals: are passed
    on to the ranks, once all can hear them. lost: once set, all must end at once. timeout: seconds, one to
    three minutes, in which ranks must come up; given_up: they had not.
    """

    def __init__(
        self, ranks: Ranks, expected: int, child: "subprocess.Popen[bytes]", signals: Heard, lost: Event,
        timeout: float,
    ) -> None:  # fmt: skip
        super().__init__(daemon=True)
        self._ranks, self._expected, self._child = ranks, expected, child
        self._signals, self._lost = signals, lost
        self._begun, self._ended = time.monotonic(), 0.0
        self._told, self._timeout = False, min(max(timeout, STARTING), LATEST)
        self.first: list[str] = []
        self.given_up = False

    def run(self) -> None:
        """Look until all is over, then end who is left."""
        while not self._over():
            self._tell()
            self._fence()
            self._give_up()
            ended = self._ranks.ended(GLANCE)
            self.first = self.first or ended
        self._ranks.end()

    def _over(self) -> bool:
        if not self._lost.is_set():  # else those that are new are another launcher's
            self._ranks.meet()
        if self._child.poll() is None:
            return False
        self._ended = self._ended or time.monotonic()
        return not self._ranks.live or time.monotonic() - self._ended > PATIENCE

    def _tell(self) -> None:
        """Pass on a wish to stop, as USR1: TERM ends Open MPI's ranks before they can save, USR2 MPICH's launcher."""
        ready = len(self._ranks.announced) >= self._expected or self._age > STARTING
        if self._signals.first and ready and not self._told:
            self._child.send_signal(signal.SIGUSR1)
            self._told = True

    def _fence(self) -> None:
        """End ranks that may not write any more, after their launcher.

        A srun that sees them end would end the step of its number, which is the next attempt's if the job was requeued.
        """
        if self._lost.is_set():
            self._child.kill()
            self._ranks.kill()

    def _give_up(self) -> None:
        """End a start that hangs: MPI waits for ever for a rank that has ended before it could be connected."""
        if self._ranks.announced or self._age < self._timeout:
            return
        if not self.given_up:
            self._child.terminate()
        elif self._age > self._timeout + PATIENCE:
            self._child.kill()
        self.given_up = True

    @property
    def _age(self) -> float:
        return time.monotonic() - self._begun
