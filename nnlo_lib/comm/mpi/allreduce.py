"""Sums over MPI ranks in host memory, in rank order except by MPI_Allreduce, and a counter that all ranks share."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray
from torch import Tensor, from_numpy

from nnlo_lib.comm.communicator import Request
from nnlo_lib.comm.mpi.progress_engine import BUSY_POLL_LOCKSTEP_S, ProgressEngine
from nnlo_lib.comm.mpi.shared_memory import SharedMemoryAllreduce, WaitUntil

Array = NDArray[Any]
ALLREDUCE_LABEL = "an all-reduce"


class HostAllreduce:
    """Algorithms that sum the vectors of an MPI communicator's ranks; `wait` overwrites the vector."""

    def __init__(
        self, comm: MPI.Comm, progress: ProgressEngine, shared_allreduce: SharedMemoryAllreduce
    ) -> None:
        self._comm, self._progress, self._shared_allreduce = comm, progress, shared_allreduce

    def by_mpi_library(self, vector: Tensor) -> Request:
        """Call MPI_Allreduce; the MPI library chooses the order of additions."""
        array = vector.cpu().numpy()
        request = self._progress.track(self._comm.Iallreduce(MPI.IN_PLACE, array))

        def finish(_: WaitUntil) -> None:
            # The barrier sleeps while ranks are late; the wait after it polls busily, because large
            # vectors move only while all ranks poll.
            self._progress.barrier(ALLREDUCE_LABEL)
            self._progress.wait_all([request], ALLREDUCE_LABEL)
            vector.copy_(from_numpy(array))

        return self.as_request(finish)

    def by_allgather(self, vector: Tensor) -> Request:
        """Send every vector to every rank; each rank adds all of them."""
        array = vector.cpu().numpy()
        vectors = np.empty((self._comm.size, array.size), array.dtype)
        request = self._progress.track(self._comm.Iallgather(array, vectors))

        def finish(_: WaitUntil) -> None:
            self._progress.wait_all([request], ALLREDUCE_LABEL)
            vector.copy_(from_numpy(_sum_in_rank_order(list(vectors), out=vectors[0])))

        return self.as_request(finish)

    def by_parts(
        self, vector: Tensor, parts: list[slice], is_shared: bool, reduces: bool = True, gathers: bool = True
    ) -> Request:
        """Add this rank's part of all vectors, if `reduces`, and fetch the other parts, if `gathers`: the bytes of a ring.

        If `is_shared`, through memory that all ranks map; they must run on one host.
        """
        array = vector.cpu().numpy()
        way = self._shared_allreduce if is_shared else self
        reduce = way.begin_reduction(array, parts, gathers) if reduces else None

        def finish(wait: WaitUntil) -> None:
            if reduce is not None:
                reduce(wait)
            else:
                way.gather(array, parts, wait)
            # The array of a CPU vector is its own memory: only a GPU vector must be copied back.
            if vector.is_cuda:
                vector.copy_(from_numpy(array))

        return self.as_request(finish)

    def begin_reduction(self, array: Array, parts: list[slice], gathers: bool) -> Callable[[WaitUntil], None]:
        """Start an all-to-all of the parts; return a function that waits and overwrites this rank's part with the sum.

        If `gathers`, it overwrites the other parts, too.
        """
        mine, counts = array[parts[self._comm.rank]], _lengths(parts)
        received = np.empty((len(parts), mine.size), array.dtype)
        transfer = self._comm.Ialltoallv([array, counts], [received, [mine.size] * len(parts)])
        request = self._progress.track(transfer)

        def finish(wait: WaitUntil) -> None:
            self._progress.barrier(ALLREDUCE_LABEL)
            self._progress.wait_all([request], ALLREDUCE_LABEL)
            # `mine` is a view of `array`, which MPI has sent by now.
            _sum_in_rank_order(list(received), out=mine)
            if gathers:
                self.gather(array, parts, wait)

        return finish

    def gather(self, array: Array, parts: list[slice], _: WaitUntil) -> None:
        """Overwrite the other ranks' parts of `array` by an all-gather."""
        gathered = self._comm.Iallgatherv(MPI.IN_PLACE, [array, _lengths(parts)])
        self._progress.wait_all([gathered], ALLREDUCE_LABEL)

    def as_request(self, finish: Callable[[WaitUntil], None]) -> Request:
        """Return the request of a sum in progress; its `wait` calls `finish`."""

        def end() -> None:
            with self._progress.timed("all-reduce"):
                finish(lambda done: self._progress.poll(done, ALLREDUCE_LABEL, BUSY_POLL_LOCKSTEP_S))

        return Request(end)


def _lengths(parts: list[slice]) -> list[int]:
    return [part.stop - part.start for part in parts]


def _sum_in_rank_order(parts: Sequence[Array], out: Array) -> Array:
    np.copyto(out, parts[0])
    for part in parts[1:]:
        np.add(out, part, out=out)
    return out


class SharedCounter:
    """Numbers, each given to one rank only. All ranks of `comm` create it together."""

    def __init__(self, comm: MPI.Comm) -> None:
        self._one = np.ones(1, np.int64)
        self._window = MPI.Win.Allocate(self._one.nbytes, self._one.nbytes, comm=MPI.Intracomm(comm))

    def close(self) -> None:
        """Free the window."""
        self._window.Free()

    def reset(self, start: int) -> None:
        """Count from `start`."""
        self._count(np.array([start]), MPI.REPLACE)

    def next(self) -> int:
        """Return the next number."""
        return self._count(self._one, MPI.SUM)

    def _count(self, change: "np.ndarray[tuple[int], np.dtype[np.int64]]", how: MPI.Op) -> int:
        before = np.empty(1, np.int64)
        # A shared lock suffices, because MPI_Fetch_and_op is atomic.
        self._window.Lock(0, MPI.LOCK_SHARED)
        self._window.Fetch_and_op(change, before, 0, op=how)
        self._window.Unlock(0)
        return int(before[0])
