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

    def by_shared_memory(self, vector: Tensor) -> Request:
        """Add in memory that all ranks share; all ranks must run on one host."""
        array = vector.cpu().numpy()
        add = self._shared_allreduce.begin_sum(array)

        def finish(wait: WaitUntil) -> None:
            add(wait)
            # The array of a CPU vector is its own memory: only a GPU vector must be copied back.
            if vector.is_cuda:
                vector.copy_(from_numpy(array))

        return self.as_request(finish)

    def by_reduce_scatter(self, vector: Tensor) -> Request:
        """Reduce-scatter by all-to-all, sum locally, all-gather: the bytes of a ring."""
        array = vector.cpu().numpy()
        size = self._comm.size
        chunks = np.array_split(array, size)
        counts = [chunk.size for chunk in chunks]
        mine = chunks[self._comm.rank]
        parts = np.empty((size, mine.size), array.dtype)
        request = self._progress.track(self._comm.Ialltoallv([array, counts], [parts, [mine.size] * size]))

        def finish(_: WaitUntil) -> None:
            self._progress.barrier(ALLREDUCE_LABEL)
            self._progress.wait_all([request], ALLREDUCE_LABEL)
            # `mine` is a view of `array`, which MPI has sent by now.
            _sum_in_rank_order(list(parts), out=mine)
            gathered = self._comm.Iallgatherv(MPI.IN_PLACE, [array, counts])
            self._progress.wait_all([gathered], ALLREDUCE_LABEL)
            if vector.is_cuda:
                vector.copy_(from_numpy(array))

        return self.as_request(finish)

    def as_request(self, finish: Callable[[WaitUntil], None]) -> Request:
        """Return the request of a sum in progress; its `wait` calls `finish`."""

        def end() -> None:
            with self._progress.timed("all-reduce"):
                finish(lambda done: self._progress.poll(done, ALLREDUCE_LABEL, BUSY_POLL_LOCKSTEP_S))

        return Request(end)


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
