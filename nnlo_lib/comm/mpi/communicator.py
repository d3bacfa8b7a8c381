"""Communicator of ranks that are MPI processes: every call is non-blocking inside, and every wait is bounded in time."""

import json
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray
from torch import Tensor, from_numpy

from nnlo_lib.comm.accounting import ALLGATHER_MAX_BYTES, parts_of
from nnlo_lib.comm.communicator import ANY, Communicator, Message, Request, exchange_failpoint
from nnlo_lib.comm.mpi.allreduce import HostAllreduce, SharedCounter
from nnlo_lib.comm.mpi.progress_engine import (
    BUSY_POLL_LOCKSTEP_S,
    BUSY_POLL_UNSOLICITED_S,
    PeerMonitor,
    ProgressEngine,
    RankProcess,
    own_doorbell,
)
from nnlo_lib.comm.mpi.shared_memory import (
    SHARED_MEMORY_MIN_BYTES,
    SharedMailboxes,
    SharedMemoryAllreduce,
    shared_memory_domain,
)

if TYPE_CHECKING:
    from nnlo_lib.comm.gpu_allreduce import NcclAllreduce

Array = NDArray[Any]

# Communicators abandoned in the middle of a call, with the buffers that MPI may still write into. While
# there are any, MPI.Finalize would wait for them: the process must exit without it.
ABANDONED_COMMUNICATORS: list[object] = []


class MPICommunicator(Communicator):
    """Ranks of an MPI communicator.

    The `reduction` "reproducible" adds in rank order, which gives the same bits with any library and network; "fastest"
    calls MPI_Allreduce. `given_up` returns the reason to stop waiting, or an empty string.
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
        self._reduction, self._timeout, self._abort_reason = reduction, timeout, given_up
        own, domain = RankProcess(self.rank, socket.gethostname(), os.getpid()), shared_memory_domain()
        self._doorbell = own_doorbell(os.getpid())  # opened before the peers know the process
        # Until the first gather, the hosts and pids of the peers are unknown: monitor only this process.
        provisional = PeerMonitor(self.rank, [own] * self.size, timeout, given_up)
        self._progress = ProgressEngine(self._comm, provisional, self.seconds)
        everyones = self.gather([own.host, own.pid, domain])
        processes = [RankProcess(rank, host, pid) for rank, (host, pid, _) in enumerate(everyones)]
        self._progress.peers = PeerMonitor(self.rank, processes, timeout, given_up)
        self._shares_domain = [other == domain for *_, other in everyones]
        # On communicators of their own, receipts and signals never match the callers' messages.
        self._own = [self.duplicate(), self.duplicate()]
        self._mailboxes = SharedMailboxes(self._own[0])
        self._shared_allreduce = SharedMemoryAllreduce(self._own[1])
        self._sums = HostAllreduce(self._comm, self._progress, self._shared_allreduce)
        self._counter: SharedCounter | None = None
        self._gpu_allreduce: NcclAllreduce | None = None  # None: sums go through host memory
        self._parts: list[MPICommunicator] = []

    @exchange_failpoint
    def split(self, color: int) -> "MPICommunicator":
        part = MPICommunicator(
            self._comm.Split(color, self.rank), self._reduction, self._timeout, self._abort_reason
        )
        self._parts.append(part)
        members, peers = part.gather(self.rank), self._progress.peers
        part._counting_into(self, members)
        processes = [peers.processes[member] for member in members]
        part._progress.peers = PeerMonitor(part.rank, processes, self._timeout, self._abort_reason)
        # A rank of this part may wait for a rank of another part, which may be stopped.
        part._progress.peers.neighbors = peers.neighbors
        # `_counting_into` replaced the part's `seconds`; its engine still holds the old ones.
        part._progress.seconds = self.seconds
        return part

    def duplicate(self) -> MPI.Intracomm:
        """Return an MPI communicator of the same ranks; all ranks call it."""
        copy, request = MPI.Intracomm(self._comm).Idup()
        self._progress.wait_all([request], "a copy of the communicator", patience=BUSY_POLL_LOCKSTEP_S)
        return copy

    def sum_by_nccl(self, timeout: float, fastest: bool) -> None:
        # Imported here, because torch may be built without NCCL.
        from nnlo_lib.comm.gpu_allreduce import NcclAllreduce

        self._gpu_allreduce = NcclAllreduce(self, timeout, fastest)

    def free(self) -> None:
        """Free the resources of MPI and the kernel; all ranks call it after all have finished with it."""
        for part in self._parts:
            part.free()
        self._mailboxes.close()
        self._shared_allreduce.close()
        self.free_counter()
        # MPI has only some thousands of communicators, and a rank pool duplicates some for each training.
        for comm in (*self._own, self._comm):
            comm.Free()

    def free_counter(self) -> None:
        """Free the window of `next_index`, or MPI.Finalize prints messages about it; all ranks call it."""
        if self._counter is not None:
            self._counter.close()
            self._counter = None

    def abandon(self) -> None:
        """Free part of the resources after a rank has left in the middle of a call.

        Memory that MPI may still write into is kept in ABANDONED_COMMUNICATORS.
        """
        # Communicators and windows stay: to free them is a collective call, in which a rank would be missing.
        for part in self._parts:
            part.abandon()
        self._mailboxes.close()
        held = self._progress.in_flight, self._progress.outbox, self._shared_allreduce.close()
        ABANDONED_COMMUNICATORS.append((self._comm, self._own, held))

    def now(self) -> float:
        return time.perf_counter()

    @exchange_failpoint
    def barrier(self) -> None:
        with self._progress.timed("barrier"):
            self._progress.barrier("a barrier")

    @exchange_failpoint
    def broadcast(self, vector: Tensor, root: int = 0, purpose: str = "parameters") -> None:
        if self.rank == root:
            self.traffic.count_broadcast(vector.nbytes, self.size, purpose)
        with self._progress.timed("broadcast"), _host(vector) as array:
            self._progress.barrier("a broadcast")
            self._progress.wait_all([self._comm.Ibcast(array, root)], "a broadcast", [root])

    @exchange_failpoint
    def iallreduce(self, vector: Tensor, purpose: str = "gradient") -> Request:
        if self.size == 1:
            return Request(lambda: None)
        on_gpu = self._gpu_allreduce if vector.is_cuda else None
        if on_gpu is not None or self._reduction == "fastest":
            self.traffic.count_ring(vector.nbytes, self.size, purpose)
            return (
                self._sums.as_request(on_gpu.begin(vector)) if on_gpu else self._sums.by_mpi_library(vector)
            )
        self.traffic.count_allreduce(vector.numel(), vector.element_size(), self.rank, self.size, purpose)
        # The condition of `allreduce_rounds`, by which the traffic is counted.
        if vector.nbytes * (self.size - 1) <= ALLGATHER_MAX_BYTES:
            return self._sums.by_allgather(vector)
        # The division of np.array_split; `traffic` counts shared memory like messages.
        mean, rest = divmod(vector.numel(), self.size)
        ends = [rank * mean + min(rank, rest) for rank in range(self.size + 1)]
        parts = [slice(*each) for each in pairwise(ends)]
        return self._sums.by_parts(vector, parts, self._is_shared(vector))

    @exchange_failpoint
    def exchange_parts(self, vector: Tensor, size: int, gathers: bool) -> None:
        if self.size == 1:
            return
        parts, how = parts_of(vector.numel(), self.size), {"reduces": not gathers, "gathers": gathers}
        if self._gpu_allreduce and vector.is_cuda:
            self._sums.as_request(self._gpu_allreduce.begin(vector, parts[0].stop, **how)).wait()
        else:
            self._sums.by_parts(vector, parts, self._is_shared(vector), **how).wait()

    def _is_shared(self, vector: Tensor) -> bool:
        return all(self._shares_domain) and vector.nbytes >= SHARED_MEMORY_MIN_BYTES

    @exchange_failpoint
    def exchange(
        self, outgoing: Mapping[int, Tensor], incoming: Mapping[int, Tensor], purpose: str = "parameters"
    ) -> None:
        for peer, vector in outgoing.items():
            self._count(vector, peer, purpose)
        arrays = {peer: vector.cpu().numpy() for peer, vector in incoming.items()}
        with self._progress.timed("exchange"):
            # All transfers start before the wait, so that ranks that exchange in a cycle cannot deadlock.
            requests = [self._comm.Irecv(array, peer) for peer, array in arrays.items()]
            requests += [self._comm.Isend(vector.cpu().numpy(), peer) for peer, vector in outgoing.items()]
            self._progress.wait_all(requests, "an exchange", [*incoming, *outgoing], BUSY_POLL_LOCKSTEP_S)
        for peer, vector in incoming.items():
            if vector.is_cuda:
                vector.copy_(from_numpy(arrays[peer]))

    @exchange_failpoint
    def send(self, vector: Tensor, to: int, tag: int = 0, purpose: str = "parameters") -> None:
        self._count(vector, to, purpose)
        array = vector.cpu().numpy()
        with self._progress.timed("send"):
            shared = self._shares_memory(to, array)
            # Either way a copy is sent, because the caller may change `vector` at once.
            what = self._mailboxes.deposit(array, to) if shared else array.copy()
            message = self._comm.Isend(what, to, tag)
            if self._shares_domain[to]:
                self._doorbell.ring(self._progress.peers.processes[to].pid)
            self._progress.detach(message)

    @exchange_failpoint
    def receive(self, vector: Tensor, source: int, tag: int = 0) -> None:
        # The sender may be late: `probe` sleeps between polls, whereas `wait_all` polls busily at first.
        self.probe(source, tag)
        with self._progress.timed("receive"), _host(vector) as array:
            if self._shares_memory(source, array):
                address = np.empty(4, np.int64)
                self._progress.wait_all([self._comm.Irecv(address, source, tag)], "receiving", [source])
                self._progress.detach(self._mailboxes.collect(array, address, source))
            else:
                self._progress.wait_all([self._comm.Irecv(array, source, tag)], "receiving", [source])

    def _shares_memory(self, peer: int, array: Array) -> bool:
        # Sender and receiver apply this rule to vectors of the same length, so that messages need no flag.
        return self._shares_domain[peer] and array.nbytes >= SHARED_MEMORY_MIN_BYTES

    @exchange_failpoint
    def probe(self, source: int = ANY, tag: int = ANY) -> Message:
        status = MPI.Status()
        awaited = [source] if source != ANY else None
        is_rung = all(self._shares_domain) if awaited is None else self._shares_domain[source]
        with self._progress.timed("probe"):
            look = partial(self._look, source, tag, status)
            self._progress.poll(look, "a message", BUSY_POLL_UNSOLICITED_S, awaited, is_rung)
        return Message(status.Get_source(), status.Get_tag())

    @exchange_failpoint
    def iprobe(self, source: int = ANY, tag: int = ANY) -> Message | None:
        status = MPI.Status()
        with self._progress.timed("look"):
            found = self._look(source, tag, status)
        return Message(status.Get_source(), status.Get_tag()) if found else None

    def _look(self, source: int, tag: int, status: MPI.Status) -> bool:
        """Return True if a message has arrived, and overwrite `status` with its source and tag; do not receive it."""
        sender = MPI.ANY_SOURCE if source == ANY else source
        return self._comm.Iprobe(sender, MPI.ANY_TAG if tag == ANY else tag, status)

    @exchange_failpoint
    def reset_counter(self, start: int) -> None:
        # The first barrier waits for ranks that still take numbers of the previous count; the second one
        # keeps ranks from taking numbers before the reset.
        self.barrier()
        if self._counter is None:
            self._counter = SharedCounter(self._comm)
        if self.rank == 0:
            self._counter.reset(start)
        self.barrier()

    @exchange_failpoint
    def next_index(self) -> int:
        assert self._counter is not None, "next_index() called before reset_counter()"
        return self._counter.next()

    @exchange_failpoint
    def gather(self, item: Any) -> list[Any]:
        text = np.frombuffer(json.dumps(item).encode(), np.uint8)
        sizes = np.empty(self.size, np.int64)
        with self._progress.timed("gather"):
            self._progress.barrier("a gather")
            self._progress.wait_all([self._comm.Iallgather(np.array([text.size]), sizes)], "a gather")
            texts = np.empty(sizes.sum(), np.uint8)
            self._progress.wait_all([self._comm.Iallgatherv(text, [texts, sizes.tolist()])], "a gather")
        ends = np.cumsum(sizes)
        return [json.loads(texts[end - size : end].tobytes()) for size, end in zip(sizes, ends, strict=True)]


@contextmanager
def _host(vector: Tensor) -> Iterator[Array]:
    """Yield the vector's memory for MPI; a vector on a GPU is copied to the host and back."""
    array = vector.cpu().numpy()
    yield array
    if vector.is_cuda:
        vector.copy_(from_numpy(array))
