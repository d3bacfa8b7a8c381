"""Progress of a rank's MPI transfers: polling, bounded waits and their time."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from mpi4py import MPI

from nnlo_lib.comm.accounting import PhaseSeconds
from nnlo_lib.comm.mpi.peer_monitor import AwaitedRanks, PeerMonitor

BUSY_POLL_UNSOLICITED_S = 0.0  # seconds of busy polling for a message that may take long to arrive
BUSY_POLL_LOCKSTEP_S = 1e-3  # for peers that do the same work as this rank
BUSY_POLL_TRANSFER_S = 1.0  # for transfers in progress: large messages move only while both sides poll


class ProgressEngine:
    """The transfers of an MPI communicator that are in progress; a wait for one of them advances all of them.

    Attributes:
        peers: bounds the waits for peer ranks.
        seconds: receives the time spent in communication and waiting.
        outbox: sends that are not complete.
        in_flight: transfers whose buffers MPI still uses.
    """

    def __init__(self, comm: MPI.Comm, peers: PeerMonitor, seconds: PhaseSeconds) -> None:
        self._comm, self.peers, self.seconds = comm, peers, seconds
        self.outbox: list[MPI.Request] = []
        self.in_flight: list[MPI.Request] = []  # also keeps the memory alive that MPI writes into

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
        """Poll until all requests are complete.

        Args:
            requests: transfers to wait for.
            what: name of the awaited event in error messages.
            awaited: ranks to wait for; default: all other ranks.
            patience: seconds of busy polling before sleeps between polls.

        Raises:
            PeerLostError: if awaited ranks are dead or do not respond in time.
        """
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
        self, done: Callable[[], bool], what: str, patience: float, awaited: AwaitedRanks = None
    ) -> None:
        """Poll until `done` returns True; count the sleeps as waiting.

        The sleeps are reported as one span at the end of the polling.

        Args:
            done: the condition.
            what: name of the awaited event in error messages and traces.
            patience: seconds of busy polling before sleeps between polls.
            awaited: ranks to wait for; default: all other ranks.

        Raises:
            PeerLostError: if awaited ranks are dead or do not respond in time.
        """
        if slept := self.peers.wait(done, what, patience, awaited):
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
