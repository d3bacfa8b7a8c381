"""Ranks as MPI processes: every call is non-blocking inside, and what it waits for is bounded in time."""

import json
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray
from torch import Tensor, from_numpy

from nnlo_lib.comm.boards import Boards
from nnlo_lib.comm.communicator import ANY, Communicator, Message, Request
from nnlo_lib.comm.gpu_sum import GpuSum
from nnlo_lib.comm.mailbox import LARGE, Mailboxes, neighbourhood
from nnlo_lib.comm.peers import Peers
from nnlo_lib.comm.sums import Sums
from nnlo_lib.comm.tickets import Tickets
from nnlo_lib.comm.traffic import GATHERED
from nnlo_lib.comm.waits import IN_STEP, STRANGER, Waits

Array = NDArray[Any]

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
        here = (socket.gethostname(), os.getpid(), neighbourhood())
        strangers = Peers(self.rank, [here[:2]] * self.size, timeout, given_up)  # until all have said theirs
        self._waits = Waits(self._comm, strangers, self.seconds)
        everyone = self.gather(here)
        self._waits.peers = Peers(self.rank, [(host, pid) for host, pid, _ in everyone], timeout, given_up)
        self._neighbours = [near == here[2] for _, _, near in everyone]
        self._own = [self.duplicate(), self.duplicate()]
        self._mailboxes, self._boards = Mailboxes(self._own[0]), Boards(self._own[1])
        self._sums = Sums(self._comm, self._waits, self._boards)
        self._tickets: Tickets | None = None
        self.on_gpu: GpuSum | None = None  # sums vectors that are on GPUs; none: through host memory
        self._parts: list[MPICommunicator] = []

    def split(self, color: int) -> "MPICommunicator":
        part = MPICommunicator(
            self._comm.Split(color, self.rank), self._reduction, self._timeout, self._given_up
        )
        part._waits.peers.excuses = self._waits.peers.excuses  # may wait for another part's rank
        self._parts.append(part)
        part._counting_into(self, part.gather(self.rank))
        part._waits.seconds = self.seconds
        return part

    def duplicate(self) -> MPI.Intracomm:
        """Return an MPI communicator of the same ranks; all call it."""
        copy, request = MPI.Intracomm(self._comm).Idup()
        self._waits.finish([request], "a copy of the communicator", patience=IN_STEP)
        return copy

    def free(self) -> None:
        """Give back what MPI and the kernel hold; all call it, once all are done with it."""
        for part in self._parts:
            part.free()
        self._mailboxes.close()
        self._boards.close()
        self.end_deal()
        for comm in (*self._own, self._comm):
            comm.Free()

    def end_deal(self) -> None:
        """Give back what `ticket` needs, of which MPI.Finalize would complain at length; all call it."""
        if self._tickets is not None:
            self._tickets.close()
            self._tickets = None

    def abandon(self) -> None:
        """Give back what can be, as a rank left it in the middle of a call: MPI may still write into the rest."""
        for part in self._parts:
            part.abandon()
        self._mailboxes.close()
        WRECKS.append((self._comm, self._own, self._waits.open, self._waits.outbox, self._boards.close()))

    def now(self) -> float:
        return time.perf_counter()

    def barrier(self) -> None:
        with self._waits.timed("barrier"):
            self._waits.meet("a barrier")

    def broadcast(self, vector: Tensor, root: int = 0, purpose: str = "parameters") -> None:
        if self.rank == root:
            self.traffic.broadcast(vector.nbytes, self.size, purpose)
        with self._waits.timed("broadcast"), _host(vector) as array:
            self._waits.meet("a broadcast")
            self._waits.finish([self._comm.Ibcast(array, root)], "a broadcast", [root])

    def iallreduce(self, vector: Tensor, purpose: str = "gradient") -> Request:
        if self.size == 1:
            return Request(lambda: None)
        on_gpu = self.on_gpu if vector.is_cuda else None
        if on_gpu is not None or self._reduction == "fastest":
            self.traffic.ring(vector.nbytes, self.size, purpose)
            return self._sums.finishing(on_gpu.begin(vector)) if on_gpu else self._sums.by_library(vector)
        self.traffic.allreduce(vector.numel(), vector.element_size(), self.rank, self.size, purpose)
        if vector.nbytes * (self.size - 1) <= GATHERED:
            return self._sums.gathered(vector)
        if all(self._neighbours) and vector.nbytes >= LARGE:
            return self._sums.shared(vector)  # counts as the bytes of a ring
        return self._sums.scattered(vector)

    def exchange(
        self, outgoing: Mapping[int, Tensor], incoming: Mapping[int, Tensor], purpose: str = "parameters"
    ) -> None:
        for peer, vector in outgoing.items():
            self._count(vector, peer, purpose)
        arrays = {peer: vector.cpu().numpy() for peer, vector in incoming.items()}
        with self._waits.timed("exchange"):
            requests = [self._comm.Irecv(array, peer) for peer, array in arrays.items()]
            requests += [self._comm.Isend(vector.cpu().numpy(), peer) for peer, vector in outgoing.items()]
            self._waits.finish(requests, "an exchange", [*incoming, *outgoing], IN_STEP)
        for peer, vector in incoming.items():
            if vector.is_cuda:
                vector.copy_(from_numpy(arrays[peer]))

    def send(self, vector: Tensor, to: int, tag: int = 0, purpose: str = "parameters") -> None:
        self._count(vector, to, purpose)
        array = vector.cpu().numpy()
        with self._waits.timed("send"):
            shared = self._shares_memory(to, array)
            what = self._mailboxes.deposit(array, to) if shared else array.copy()
            self._waits.see_off(self._comm.Isend(what, to, tag))

    def receive(self, vector: Tensor, source: int, tag: int = 0) -> None:
        self.probe(source, tag)
        with self._waits.timed("receive"), _host(vector) as array:
            if self._shares_memory(source, array):
                address = np.empty(4, np.int64)
                self._waits.finish([self._comm.Irecv(address, source, tag)], "receiving", [source])
                self._waits.see_off(self._mailboxes.collect(array, address, source))
            else:
                self._waits.finish([self._comm.Irecv(array, source, tag)], "receiving", [source])

    def _shares_memory(self, peer: int, array: Array) -> bool:
        return self._neighbours[peer] and array.nbytes >= LARGE

    def probe(self, source: int = ANY, tag: int = ANY) -> Message:
        status = MPI.Status()
        whom = [source] if source != ANY else None
        with self._waits.timed("probe"):
            self._waits.poll(lambda: self._look(source, tag, status), "a message", STRANGER, whom)
        return Message(status.Get_source(), status.Get_tag())

    def arrived(self, source: int = ANY, tag: int = ANY) -> Message | None:
        status = MPI.Status()
        with self._waits.timed("look"):
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
        with self._waits.timed("gather"):
            self._waits.meet("a gather")
            self._waits.finish([self._comm.Iallgather(np.array([text.size]), sizes)], "a gather")
            texts = np.empty(sizes.sum(), np.uint8)
            self._waits.finish([self._comm.Iallgatherv(text, [texts, sizes.tolist()])], "a gather")
        ends = np.cumsum(sizes)
        return [json.loads(texts[end - size : end].tobytes()) for size, end in zip(sizes, ends, strict=True)]


@contextmanager
def _host(vector: Tensor) -> Iterator[Array]:
    """Lend the vector's memory to MPI, through a host copy if it lives on a GPU."""
    array = vector.cpu().numpy()
    yield array
    if vector.is_cuda:
        vector.copy_(from_numpy(array))
