"""Sums over ranks with the same bits whatever MPI library and network: the parts are added in rank order."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray
from torch import Tensor, from_numpy

from nnlo_lib.comm.boards import Boards
from nnlo_lib.comm.communicator import Request
from nnlo_lib.comm.gpu_sum import Wait
from nnlo_lib.comm.waits import IN_STEP, Waits

Array = NDArray[Any]
WHAT = "an all-reduce"


class Sums:
    """The ways to add vectors of an MPI communicator's ranks; each overwrites the vector when its request ends."""

    def __init__(self, comm: MPI.Comm, waits: Waits, boards: Boards) -> None:
        self._comm, self._waits, self._boards = comm, waits, boards

    def by_library(self, vector: Tensor) -> Request:
        """Call MPI_Allreduce, whose order of additions is its own."""
        array = vector.cpu().numpy()
        request = self._waits.begun(self._comm.Iallreduce(MPI.IN_PLACE, array))

        def finish() -> None:
            with self._waits.timed("all-reduce"):
                self._waits.meet(WHAT)
                self._waits.finish([request], WHAT)
                vector.copy_(from_numpy(array))

        return Request(finish)

    def gathered(self, vector: Tensor) -> Request:
        """Give every rank every vector; each adds them."""
        array = vector.cpu().numpy()
        everyones = np.empty((self._comm.size, array.size), array.dtype)
        request = self._waits.begun(self._comm.Iallgather(array, everyones))

        def finish() -> None:
            with self._waits.timed("all-reduce"):
                self._waits.finish([request], WHAT)
                vector.copy_(from_numpy(_sum_in_rank_order(list(everyones), out=everyones[0])))

        return Request(finish)

    def shared(self, vector: Tensor) -> Request:
        """Add in memory that all ranks share, on one host."""
        array = vector.cpu().numpy()
        add = self._boards.sum(array)

        def finish(wait: Wait) -> None:
            add(wait)
            if vector.is_cuda:
                vector.copy_(from_numpy(array))

        return self.finishing(finish)

    def scattered(self, vector: Tensor) -> Request:
        """Reduce-scatter by all-to-all, local sum, all-gather: the bytes of a ring."""
        array = vector.cpu().numpy()
        size = self._comm.size
        chunks = np.array_split(array, size)
        counts = [chunk.size for chunk in chunks]
        mine = chunks[self._comm.rank]
        parts = np.empty((size, mine.size), array.dtype)
        request = self._waits.begun(self._comm.Ialltoallv([array, counts], [parts, [mine.size] * size]))

        def finish() -> None:
            with self._waits.timed("all-reduce"):
                self._waits.meet(WHAT)
                self._waits.finish([request], WHAT)
                _sum_in_rank_order(list(parts), out=mine)
                self._waits.finish([self._comm.Iallgatherv(MPI.IN_PLACE, [array, counts])], WHAT)
                if vector.is_cuda:
                    vector.copy_(from_numpy(array))

        return Request(finish)

    def finishing(self, finish: Callable[[Wait], None]) -> Request:
        """Return a sum that is under way, which ends by `finish`."""

        def end() -> None:
            with self._waits.timed("all-reduce"):
                finish(lambda done: self._waits.poll(done, WHAT, IN_STEP))

        return Request(end)


def _sum_in_rank_order(parts: Sequence[Array], out: Array) -> Array:
    np.copyto(out, parts[0])
    for part in parts[1:]:
        np.add(out, part, out=out)
    return out
