"""What a rank waits for: polled politely, bounded in time, and on the books."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from mpi4py import MPI

from nnlo_lib.comm.accounting import PhaseSeconds
from nnlo_lib.comm.mpi.peer_monitor import AwaitedRanks, PeerMonitor

BUSY_POLL_UNSOLICITED_S = 0.0  # seconds of busy polling for a message that may be long in coming
BUSY_POLL_LOCKSTEP_S = 1e-3  # for peers that do the same work as we do
BUSY_POLL_TRANSFER_S = 1.0  # for bytes on their way: large messages move only while both sides poll


class ProgressEngine:
    """The transfers of an MPI communicator that are under way; all are driven on by whoever waits for one.

    peers: who may die or be silent. seconds: where the time goes.
    """

    def __init__(self, comm: MPI.Comm, peers: PeerMonitor, seconds: PhaseSeconds) -> None:
        self._comm, self.peers, self.seconds = comm, peers, seconds
        self.outbox: list[MPI.Request] = []
        self.in_flight: list[MPI.Request] = []  # with the memory that they write into

    def barrier(self, what: str) -> None:
        """Wait idly until every rank has come."""
        self.poll(self._comm.Ibarrier().Test, what, BUSY_POLL_LOCKSTEP_S)

    def wait_all(
        self,
        requests: Sequence[MPI.Request],
        what: str,
        whom: AwaitedRanks = None,
        patience: float = BUSY_POLL_TRANSFER_S,
    ) -> None:
        """Drive transfers to their end."""
        self.in_flight += requests
        self.poll(lambda: MPI.Request.Testall(requests), what, patience, whom)
        self.in_flight = [request for request in self.in_flight if request]

    def track(self, request: MPI.Request) -> MPI.Request:
        """Note a transfer that is under way."""
        self.in_flight.append(request)
        return request

    def detach(self, request: MPI.Request) -> None:
        """Drive a message for a moment; if it takes longer, every later call drives it on."""
        started = time.perf_counter()
        while not request.Test():
            if time.perf_counter() - started > BUSY_POLL_LOCKSTEP_S:
                self.outbox.append(request)
                return
            os.sched_yield()

    def poll(self, done: Callable[[], bool], what: str, patience: float, whom: AwaitedRanks = None) -> None:
        """Poll `done`; naps count as waiting, and are told as one, the last of the polling."""
        if napped := self.peers.wait(done, what, patience, whom):
            now = time.perf_counter()
            self.seconds["wait"] += napped
            self.seconds.report_span(f"wait for {what}", "wait", now - napped, now)

    @contextmanager
    def timed(self, what: str) -> Iterator[None]:
        """Count the time inside as communication, less what was idle polling."""
        started, idle = time.perf_counter(), self.seconds["wait"]
        self.outbox = [request for request in self.outbox if not request.Test()]
        yield
        ended = time.perf_counter()
        self.seconds["communication"] += ended - started - (self.seconds["wait"] - idle)
        self.seconds.report_span(what, "communication", started, ended)
