"""Progress of a rank's MPI transfers: polling with bounded waits, the time spent, and the processes of the peers."""

import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from select import POLLIN, poll

from mpi4py import MPI

from nnlo_lib.comm.accounting import PhaseSeconds
from nnlo_lib.comm.communicator import PeerLostError
from nnlo_lib.core.logging_setup import get_logger
from nnlo_lib.core.process import ProcessState

logger = get_logger(__name__)

AwaitedRanks = Sequence[int] | None  # None: all other ranks
# Busy polling before the first sleep:
BUSY_POLL_UNSOLICITED_S = 0.0  # for a message that may take long to arrive
BUSY_POLL_LOCKSTEP_S = 1e-3  # for peers that do the same work as this rank
BUSY_POLL_TRANSFER_S = 1.0  # for transfers in progress: large messages move only while both sides poll
# The wait for a peer, with sleeps:
PEER_POLL_INTERVAL_S = 100e-6  # sleeping frees the core, as ranks may outnumber cores
DOORBELL_POLL_INTERVAL_S = 2e-3  # while waiting for senders that ring
PEER_POLL_BACKOFF_AFTER_S = 0.1  # of waiting, after which sleeps are ten times as long
POLLS_PER_WAKE = 3  # MPI takes a message from its queue in one call, and reports it in the next
PEER_CHECK_INTERVAL_S = 0.5  # between two checks of the processes
PEER_MAX_CREDITED_GAP_S = 0.1  # a longer sleep means that this process was stopped
# Seconds for which a rank that sees no cause waits beyond the time-out: a rank on the host of the silent
# process sees the cause, and reports it first.
PEER_CAUSE_LEAD_S = 2.0
PEER_WARNING_SHARE = 0.5  # of the time-out, after which a rank reports its wait even if it sees no cause
MAX_NAMED_RANKS = 8  # keeps a message in one line


@dataclass(frozen=True)
class RankProcess:
    """The process of a rank."""

    rank: int  # rank in the training, not in a part of its ranks
    host: str
    pid: int

    @property
    def is_local(self) -> bool:
        """Whether it runs on this host; the state of processes on other hosts is unknown."""
        return self.host == socket.gethostname()

    @property
    def is_dead(self) -> bool:
        """Whether it runs on this host and has ended."""
        return self.is_local and ProcessState.of(self.pid).has_ended

    @property
    def is_stopped(self) -> bool:
        """Whether it runs on this host and is stopped by a signal or a debugger."""
        return self.is_local and ProcessState.of(self.pid).is_stopped

    def __str__(self) -> str:
        state = str(ProcessState.of(self.pid)) if self.is_local else ""
        return f"rank {self.rank} (process {self.pid} on {self.host}{state and f', {state}'})"


class Doorbell:
    """Wakes this process from a sleep between polls; other processes of the host ring it after a message.

    A server whose messages arrive every few milliseconds would else wake up dozens of times for each, and take the
    core from the worker that computes there. A ring that is lost costs one interval between polls.
    """

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._ringing = poll()
        self._ringing.register(self._socket, POLLIN)
        self.interval = DOORBELL_POLL_INTERVAL_S
        try:
            self._socket.bind(self._address(os.getpid()))
        except OSError:  # the system has no such names, or another process has taken this one
            self.interval = PEER_POLL_INTERVAL_S

    def ring(self, pid: int) -> None:
        """Wake the process, if it listens; a full queue means that it has been rung."""
        with suppress(OSError):
            self._socket.sendto(b"", self._address(pid))

    @staticmethod
    def _address(pid: int) -> bytes:
        # A name in the kernel: no file, and gone with the process. A pid is unique in its name space only.
        return b"\0nnlo-doorbell-%d-%d" % (os.stat("/proc/self/ns/pid").st_ino, pid)

    def sleep(self, seconds: float) -> None:
        """Sleep until the doorbell rings, or for some seconds."""
        self._ringing.poll(seconds * 1e3)
        with suppress(BlockingIOError):
            while True:
                self._socket.recv(1)


@cache
def own_doorbell(pid: int) -> Doorbell:
    """Return the doorbell of this process; `pid` is its id, so that a fork opens its own."""
    return Doorbell()


class PeerMonitor:
    """Watch the processes of a communicator's ranks and bound the wait for them.

    Only seconds in which this process runs count: a scheduler that suspends a job stops all its processes, for
    hours if necessary. A peer that is stopped while this process runs is not suspended by a scheduler: it
    is reported at once and lost after the time-out, like every other peer that does not respond. `given_up` returns the
    reason to stop waiting if a live peer has reported one, else an empty string.
    """

    def __init__(
        self, rank: int, processes: Sequence[RankProcess], timeout: float, given_up: Callable[[], str]
    ) -> None:
        self.processes, self._timeout, self.abort_reason = processes, timeout, given_up
        self._own, self._others = processes[rank], [*processes[:rank], *processes[rank + 1 :]]
        self._reported = ""
        # Other ranks of this host; messages name the stopped ones.
        self.neighbors = [each for each in self._others if each.is_local and each != self._own]

    def wait(
        self, done: Callable[[], bool], what: str, patience: float, awaited: AwaitedRanks = None, is_rung: bool = False
    ) -> float:  # fmt: skip
        """Poll `done` until it returns True, busily for `patience` seconds; return the seconds spent asleep.

        Raises PeerLostError if awaited ranks are dead (it names these), do not respond in time (it names the stopped
        ranks, or all awaited ranks), or there is a reason to stop waiting.
        """
        started = time.perf_counter()
        while not done():
            if time.perf_counter() - started >= patience:
                peers = self._others if awaited is None else [self.processes[peer] for peer in awaited]
                return self._wait_with_sleeps(done, what, patience, peers, is_rung)
            # Ranks may outnumber cores: the awaited rank may need this core.
            os.sched_yield()
        return 0.0

    def _wait_with_sleeps(
        self, done: Callable[[], bool], what: str, waited: float, awaited: Sequence[RankProcess], is_rung: bool
    ) -> float:  # fmt: skip
        bell = own_doorbell(os.getpid())
        sleep, interval = (bell.sleep, bell.interval) if is_rung else (time.sleep, PEER_POLL_INTERVAL_S)
        slept, unchecked, checked_at = 0.0, 0.0, time.perf_counter()
        while not any(done() for _ in range(POLLS_PER_WAKE)):
            is_early = waited + unchecked < PEER_POLL_BACKOFF_AFTER_S
            started = time.perf_counter()
            sleep(interval if is_early else 10 * interval)
            now = time.perf_counter()
            slept += now - started
            # A longer gap means that this process was stopped (SIGSTOP); peers are not charged for this time.
            unchecked, checked_at = unchecked + min(now - checked_at, PEER_MAX_CREDITED_GAP_S), now
            if unchecked > PEER_CHECK_INTERVAL_S:
                waited, unchecked = waited + unchecked, 0.0
                self._check(done, waited, what, awaited)
        if self._reported:
            logger.info(
                f"rank {self._own.rank}: the wait for {self._reported} has ended; the training continues"
            )
            self._reported = ""
        return slept

    def _check(
        self, done: Callable[[], bool], waited: float, what: str, awaited: Sequence[RankProcess]
    ) -> None:
        dead = [peer for peer in awaited if peer.is_dead]
        stopped = [peer for peer in self.neighbors if peer.is_stopped]
        limit = self._timeout + (0 if stopped else PEER_CAUSE_LEAD_S)
        if (dead or waited > limit) and not done():  # A peer may have completed the call and exited.
            names, state = describe_ranks(dead or stopped or awaited), f"did not respond for {waited:.0f} s"
            text = f"rank {self._own.rank} waited for {what}, but {names} {'died' if dead else state}"
            raise PeerLostError(text, dead=[peer.rank for peer in dead])
        if (why := self.abort_reason()) and not done():
            raise PeerLostError(f"rank {self._own.rank} waited for {what}, but {why}")
        if stopped or waited > PEER_WARNING_SHARE * self._timeout:
            # Once per wait, unless a lower rank of this host logs the same ranks.
            lower = [peer for peer in self.neighbors if peer.rank < self._own.rank and not peer.is_stopped]
            if not (self._reported or lower):
                self._reported, silent = what, describe_ranks(stopped or awaited)
                logger.warning(
                    f"rank {self._own.rank} has waited {waited:.0f} s for {what}: no response from {silent}; "
                    f"after {self._timeout:.0f} s (parallel.peer_timeout), the ranks end"
                )


def describe_ranks(ranks: Sequence[RankProcess]) -> str:
    """Return the ranks with process, host and state as text; at most MAX_NAMED_RANKS of them by name."""
    rest = len(ranks) - MAX_NAMED_RANKS
    return ", ".join(map(str, ranks[:MAX_NAMED_RANKS])) + (f" and {rest} more ranks" if rest > 0 else "")


class ProgressEngine:
    """The transfers of an MPI communicator that are in progress; a wait for one of them advances all of them."""

    def __init__(self, comm: MPI.Comm, peers: PeerMonitor, seconds: PhaseSeconds) -> None:
        self._comm, self.peers, self.seconds = comm, peers, seconds
        self.outbox: list[MPI.Request] = []  # sends that are not complete
        # Transfers whose buffers MPI still uses: keeps the memory alive that MPI writes into.
        self.in_flight: list[MPI.Request] = []

    def barrier(self, what: str) -> None:
        """Wait, with sleeps between polls, until every rank has called this."""
        self.poll(self._comm.Ibarrier().Test, what, BUSY_POLL_LOCKSTEP_S)

    def wait_all(
        self,
        requests: Sequence[MPI.Request],
        what: str,
        awaited: AwaitedRanks = None,
        patience: float = BUSY_POLL_TRANSFER_S,
    ) -> None:
        """Poll until all requests are complete, busily for `patience` seconds, then with sleeps between polls."""
        # Recorded before the wait, because MPI may still write into the buffers if it raises PeerLostError.
        self.in_flight += requests
        self.poll(lambda: MPI.Request.Testall(requests), what, patience, awaited)
        # mpi4py sets completed requests to REQUEST_NULL, which is false.
        self.in_flight = [request for request in self.in_flight if request]

    def track(self, request: MPI.Request) -> MPI.Request:
        """Record a transfer that is in progress."""
        self.in_flight.append(request)
        return request

    def detach(self, request: MPI.Request) -> None:
        """Poll a send for a short time; if it is not complete by then, every later call polls it."""
        started = time.perf_counter()
        while not request.Test():
            if time.perf_counter() - started > BUSY_POLL_LOCKSTEP_S:
                self.outbox.append(request)
                return
            os.sched_yield()

    def poll(
        self, done: Callable[[], bool], what: str, patience: float, awaited: AwaitedRanks = None, is_rung: bool = False
    ) -> None:  # fmt: skip
        """Poll until `done` returns True; count the sleeps as waiting, and report them as one span at the end."""
        # Sends in progress advance with each poll.
        if slept := self.peers.wait(done, what, patience, awaited, is_rung and not self.outbox):
            now = time.perf_counter()
            self.seconds["wait"] += slept
            self.seconds.report_span(f"wait for {what}", "wait", now - slept, now)

    @contextmanager
    def timed(self, what: str) -> Iterator[None]:
        """Count the time inside as communication, without idle polling."""
        started, idle = time.perf_counter(), self.seconds["wait"]
        # MPI may move data only inside its calls: here every call lets unfinished sends make progress.
        self.outbox = [request for request in self.outbox if not request.Test()]
        yield
        ended = time.perf_counter()
        self.seconds["communication"] += ended - started - (self.seconds["wait"] - idle)
        self.seconds.report_span(what, "communication", started, ended)
