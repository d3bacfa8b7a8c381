"""Ranks as MPI processes: every call is non-blocking inside, polled politely and bounded in time."""

import json
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray
from torch import Tensor, from_numpy

from nnlo_lib.comm.boards import Boards
from nnlo_lib.comm.communicator import ANY, Communicator, Message, Request
from nnlo_lib.comm.gpu_sum import GpuSum, Wait
from nnlo_lib.comm.mailbox import LARGE, Mailboxes, neighbourhood
from nnlo_lib.comm.peers import Peers, Whom
from nnlo_lib.comm.tickets import Tickets
from nnlo_lib.comm.traffic import GATHERED

Array = NDArray[Any]

STRANGER = 0.0  # seconds of busy polling for a message that may be long in coming
IN_STEP = 1e-3  # for peers that do the same work as we do
MOVING = 1.0  # for bytes on their way: large messages move only while both sides poll
WRECKS: list[object] = []  # of communicators left in the middle of a call; MPI.Finalize would wait for them


class MPICommunicator(Communicator):
    """Ranks of an MPI communicator.

    reduction: `reproducible` adds in rank order, the same bits whatever the library and network; `fastest` calls
    MPI_Allreduce. timeout: seconds a silent peer is waited for. given_up: says why not to wait any more, if so.
    """

    def __init__(
        self,
        comm: MPI.Comm | None = None,
        reduction: str = "reproducible",
        timeout: float = 600,
        given_up: Callable[[], str] = str,
    ) -> None:
        self._comm = comm or MPI.COMM_WORLD
        super().__init__(self._comm.Get_rank(), self._comm.Get_size())
        self._reduction, self._timeout, self._given_up = reduction, timeout, given_up
        self._outbox: list[MPI.Request] = []
        self._open: list[MPI.Request] = []  # with the memory that they write into
        here = (socket.gethostname(), os.getpid(), neighbourhood())
        self._peers = Peers(
            self.rank, [here[:2]] * self.size, timeout, given_up
        )  # until all have said theirs
        everyone = self.gather(here)
        self._peers = Peers(self.rank, [(host, pid) for host, pid, _ in everyone], timeout, given_up)
        self._neighbours = [near == here[2] for _, _, near in everyone]
        self._own = [self.duplicate(), self.duplicate()]
        self._mailboxes, self._boards = Mailboxes(self._own[0]), Boards(self._own[1])
        self._tickets: Tickets | None = None
        self.on_gpu: GpuSum | None = None  # sums vectors that are on GPUs; none: through host memory
        self._parts: list[MPICommunicator] = []

    def split(self, color: int) -> "MPICommunicator":
        part = MPICommunicator(
            self._comm.Split(color, self.rank), self._reduction, self._timeout, self._given_up
        )
        part._peers.excuses = self._peers.excuses  # a peer may itself be waiting for a rank of another part
        self._parts.append(part)
        return part._counting_into(self, part.gather(self.rank))

    def duplicate(self) -> MPI.Intracomm:
        """Return an MPI communicator of the same ranks; all call it."""
        copy, request = MPI.Intracomm(self._comm).Idup()
        self._wait([request], "a copy of the communicator", patience=IN_STEP)
        return copy

    def free(self) -> None:
        """Give back what MPI and the kernel hold; all call it, once all are done with it."""
        for part in self._parts:
            part.free()
        self._mailboxes.close()
        self._boards.close()
        if self._tickets is not None:
            self._tickets.close()
        for comm in (*self._own, self._comm):
            comm.Free()

    def abandon(self) -> None:
        """Give back what can be, as a rank left it in the middle of a call: MPI may still write into the rest."""
        for part in self._parts:
            part.abandon()
        self._mailboxes.close()
        WRECKS.append((self._comm, self._own, self._open, self._outbox, self._boards.close()))

    def now(self) -> float:
        return time.perf_counter()

    def barrier(self) -> None:
        with self._timed("barrier"):
            self._meet("a barrier")

    def broadcast(self, vector: Tensor, root: int = 0, purpose: str = "parameters") -> None:
        if self.rank == root:
            self.traffic.broadcast(vector.nbytes, self.size, purpose)
        with self._timed("broadcast"), _host(vector) as array:
            self._meet("a broadcast")
            self._wait([self._comm.Ibcast(array, root)], "a broadcast", [root])

    def iallreduce(self, vector: Tensor, purpose: str = "gradient") -> Request:
        if self.size == 1:
            return Request(lambda: None)
        if self.on_gpu is not None and vector.is_cuda:
            self.traffic.ring(vector.nbytes, self.size, purpose)
            return self._finishing(self.on_gpu.begin(vector))
        if self._reduction == "fastest":
            return self._library_sum(vector, purpose)
        self.traffic.allreduce(vector.numel(), vector.element_size(), self.rank, self.size, purpose)
        if vector.nbytes * (self.size - 1) <= GATHERED:
            return self._gathered_sum(vector)
        if all(self._neighbours) and vector.nbytes >= LARGE:
            return self._shared_sum(vector)
        return self._scattered_sum(vector)

    def _finishing(self, finish: Callable[[Wait], None]) -> Request:
        """Return a sum that is under way, which ends by `finish`."""

        def end() -> None:
            with self._timed("all-reduce"):
                finish(lambda done: self._poll(done, "an all-reduce", IN_STEP))

        return Request(end)

    def _library_sum(self, vector: Tensor, purpose: str) -> Request:
        self.traffic.ring(vector.nbytes, self.size, purpose)
        array = vector.cpu().numpy()
        request = self._begun(self._comm.Iallreduce(MPI.IN_PLACE, array))

        def finish() -> None:
            with self._timed("all-reduce"):
                self._meet("an all-reduce")
                self._wait([request], "an all-reduce")
                vector.copy_(from_numpy(array))

        return Request(finish)

    def _gathered_sum(self, vector: Tensor) -> Request:
        """Give every rank every vector; each adds them in rank order."""
        array = vector.cpu().numpy()
        everyones = np.empty((self.size, array.size), array.dtype)
        request = self._begun(self._comm.Iallgather(array, everyones))

        def finish() -> None:
            with self._timed("all-reduce"):
                self._wait([request], "an all-reduce")
                vector.copy_(from_numpy(_sum_in_rank_order(list(everyones), out=everyones[0])))

        return Request(finish)

    def _shared_sum(self, vector: Tensor) -> Request:
        """Add on one host, in rank order; it counts as the bytes of a ring."""
        array = vector.cpu().numpy()
        add = self._boards.sum(array)

        def finish(wait: Wait) -> None:
            add(wait)
            if vector.is_cuda:
                vector.copy_(from_numpy(array))

        return self._finishing(finish)

    def _scattered_sum(self, vector: Tensor) -> Request:
        """Reduce-scatter by all-to-all, local sum in rank order, all-gather: the bytes of a ring."""
        array = vector.cpu().numpy()
        chunks = np.array_split(array, self.size)
        counts = [chunk.size for chunk in chunks]
        mine = chunks[self.rank]
        parts = np.empty((self.size, mine.size), array.dtype)
        request = self._begun(self._comm.Ialltoallv([array, counts], [parts, [mine.size] * self.size]))

        def finish() -> None:
            with self._timed("all-reduce"):
                self._meet("an all-reduce")
                self._wait([request], "an all-reduce")
                _sum_in_rank_order(list(parts), out=mine)
                self._wait([self._comm.Iallgatherv(MPI.IN_PLACE, [array, counts])], "an all-reduce")
                if vector.is_cuda:
                    vector.copy_(from_numpy(array))

        return Request(finish)

    def exchange(
        self, outgoing: Mapping[int, Tensor], incoming: Mapping[int, Tensor], purpose: str = "parameters"
    ) -> None:
        for peer, vector in outgoing.items():
            self._count(vector, peer, purpose)
        arrays = {peer: vector.cpu().numpy() for peer, vector in incoming.items()}
        with self._timed("exchange"):
            requests = [self._comm.Irecv(array, peer) for peer, array in arrays.items()]
            requests += [self._comm.Isend(vector.cpu().numpy(), peer) for peer, vector in outgoing.items()]
            self._wait(requests, "an exchange", [*incoming, *outgoing], IN_STEP)
        for peer, vector in incoming.items():
            if vector.is_cuda:
                vector.copy_(from_numpy(arrays[peer]))

    def send(self, vector: Tensor, to: int, tag: int = 0, purpose: str = "parameters") -> None:
        self._count(vector, to, purpose)
        array = vector.cpu().numpy()
        with self._timed("send"):
            shared = self._shares_memory(to, array)
            what = self._mailboxes.deposit(array, to) if shared else array.copy()
            self._see_off(self._comm.Isend(what, to, tag))

    def receive(self, vector: Tensor, source: int, tag: int = 0) -> None:
        self.probe(source, tag)
        with self._timed("receive"), _host(vector) as array:
            if self._shares_memory(source, array):
                address = np.empty(4, np.int64)
                self._wait([self._comm.Irecv(address, source, tag)], "receiving", [source])
                self._see_off(self._mailboxes.collect(array, address, source))
            else:
                self._wait([self._comm.Irecv(array, source, tag)], "receiving", [source])

    def _shares_memory(self, peer: int, array: Array) -> bool:
        return self._neighbours[peer] and array.nbytes >= LARGE

    def _see_off(self, request: MPI.Request) -> None:
        """Drive a transfer for a moment; if it takes longer, every later call drives it on."""
        started = time.perf_counter()
        while not request.Test():
            if time.perf_counter() - started > IN_STEP:
                self._outbox.append(request)
                return
            os.sched_yield()

    def probe(self, source: int = ANY, tag: int = ANY) -> Message:
        status = MPI.Status()
        whom = [source] if source != ANY else None
        with self._timed("probe"):
            self._poll(lambda: self._look(source, tag, status), "a message", STRANGER, whom)
        return Message(status.Get_source(), status.Get_tag())

    def arrived(self, source: int = ANY, tag: int = ANY) -> Message | None:
        status = MPI.Status()
        with self._timed("look"):
            there = self._look(source, tag, status)
        return Message(status.Get_source(), status.Get_tag()) if there else None

    def _look(self, source: int, tag: int, status: MPI.Status) -> bool:
        """Describe in `status` a message that has arrived; False if there is none."""
        whom = MPI.ANY_SOURCE if source == ANY else source
        return self._comm.Iprobe(whom, MPI.ANY_TAG if tag == ANY else tag, status)

    def deal(self, start: int) -> None:
        self.barrier()
        if self._tickets is None:
            self._tickets = Tickets(self._comm)
        if self.rank == 0:
            self._tickets.restart(start)
        self.barrier()

    def ticket(self) -> int:
        assert self._tickets is not None, "deal() comes first"
        return self._tickets.take()

    def gather(self, item: Any) -> list[Any]:
        text = np.frombuffer(json.dumps(item).encode(), np.uint8)
        sizes = np.empty(self.size, np.int64)
        with self._timed("gather"):
            self._meet("a gather")
            self._wait([self._comm.Iallgather(np.array([text.size]), sizes)], "a gather")
            texts = np.empty(sizes.sum(), np.uint8)
            self._wait([self._comm.Iallgatherv(text, [texts, sizes.tolist()])], "a gather")
        ends = np.cumsum(sizes)
        return [json.loads(texts[end - size : end].tobytes()) for size, end in zip(sizes, ends, strict=True)]

    def _meet(self, what: str) -> None:
        """Wait idly until every rank has come."""
        self._poll(self._comm.Ibarrier().Test, what, IN_STEP)

    def _wait(
        self, requests: Sequence[MPI.Request], what: str, whom: Whom = None, patience: float = MOVING
    ) -> None:
        """Drive transfers to their end."""
        self._open += requests
        self._poll(lambda: MPI.Request.Testall(requests), what, patience, whom)
        self._open = [request for request in self._open if request]

    def _begun(self, request: MPI.Request) -> MPI.Request:
        """Note a transfer that is under way."""
        self._open.append(request)
        return request

    def _poll(self, done: Callable[[], bool], what: str, patience: float, whom: Whom = None) -> None:
        """Poll `done`; naps count as waiting, and are told as one, the last of the polling."""
        if napped := self._peers.wait(done, what, patience, whom):
            now = time.perf_counter()
            self.seconds["wait"] += napped
            self.seconds.tell(f"wait for {what}", "wait", now - napped, now)

    @contextmanager
    def _timed(self, what: str) -> Iterator[None]:
        """Count the time inside as communication, less what was idle polling."""
        started, idle = time.perf_counter(), self.seconds["wait"]
        self._outbox = [request for request in self._outbox if not request.Test()]
        yield
        ended = time.perf_counter()
        self.seconds["communication"] += ended - started - (self.seconds["wait"] - idle)
        self.seconds.tell(what, "communication", started, ended)


def _sum_in_rank_order(parts: Sequence[Array], out: Array) -> Array:
    np.copyto(out, parts[0])
    for part in parts[1:]:
        np.add(out, part, out=out)
    return out


@contextmanager
def _host(vector: Tensor) -> Iterator[Array]:
    """Lend the vector's memory to MPI, through a host copy if it lives on a GPU."""
    array = vector.cpu().numpy()
    yield array
    if vector.is_cuda:
        vector.copy_(from_numpy(array))
