"""Event loop of greenlets: one runs at a time, the earliest in virtual time (ties: the lowest number)."""

import heapq
from collections.abc import Callable
from dataclasses import dataclass

from greenlet import getcurrent, greenlet

from nnlo_lib.comm.communicator import PeerLostError


@dataclass(eq=False)
class SimProcess:
    """One simulated rank of the whole world.

    Attributes:
        number: rank in the world.
        clock: virtual seconds.
        resumed_at: virtual time at which it was last resumed; all other processes have run up to this time.
        waits_for: the awaited event while it is blocked, for the error message of a deadlock.
    """

    number: int
    clock: float = 0.0
    resumed_at: float = 0.0
    waits_for: str = ""


class EventLoop:
    """Runs one program per process; `on_switch` is called before each resumption of a process."""

    def __init__(self, size: int, on_switch: Callable[[], None] = lambda: None) -> None:
        self.processes = [SimProcess(number) for number in range(size)]
        self._on_switch = on_switch
        self._greenlets: list[greenlet] = []
        self._ready: list[tuple[float, int]] = []

    def run(self, programs: list[Callable[[], None]]) -> None:
        """Run all programs to their end; the first exception ends all of them."""
        # greenlet raises the exception of a program here, in the parent, which ends the loop.
        self._greenlets = [greenlet(program) for program in programs]
        for process in self.processes:
            self.wake(process, 0.0)
        running = len(programs)
        while running:
            running -= self._step()

    def _step(self) -> bool:
        """Resume the earliest process; return True if it has ended."""
        if not self._ready:
            waiting = ", ".join(
                f"rank {p.number} waits for {p.waits_for}" for p in self.processes if p.waits_for
            )
            raise PeerLostError(f"deadlock between simulated ranks: {waiting}")
        time, number = heapq.heappop(self._ready)
        # Wake-ups of a process may be left when it ends.
        if self._greenlets[number].dead:
            return False
        self.processes[number].resumed_at = time
        self._on_switch()
        self._greenlets[number].switch()
        return bool(self._greenlets[number].dead)

    def wake(self, process: SimProcess, time: float) -> None:
        """Resume `process` at `time`; the process itself checks whether its wait is over."""
        heapq.heappush(self._ready, (time, process.number))

    def block(self, process: SimProcess, what: str) -> None:
        """Run other processes until one of them wakes this process."""
        process.waits_for = what
        _hub().switch()
        process.waits_for = ""

    def yield_to_earlier(self, process: SimProcess) -> None:
        """Let every process with an earlier clock run first."""
        if not self._ready or self._ready[0] > (process.clock, process.number):
            process.resumed_at = process.clock
            return
        self.wake(process, process.clock)
        process.resumed_at = -1.0
        # An earlier wake-up, for example by a message, may resume the process before its clock.
        while process.resumed_at < process.clock:
            _hub().switch()


def _hub() -> greenlet:
    parent = getcurrent().parent
    assert parent is not None
    return parent
