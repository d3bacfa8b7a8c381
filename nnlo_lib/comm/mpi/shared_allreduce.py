"""Sums over the ranks of one host, through memory that all of them map.

MPI moves large vectors in pieces, for which every rank must keep polling; ranks that share cores cannot. Here
each rank copies its vector to a buffer of its own, adds its chunk of all buffers in rank order, and copies
the chunks that the other ranks added: two to three times as fast as gloo.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from nnlo_lib.comm.mpi.shared_messages import Bytes, SharedMailbox, map_remote

Array = NDArray[Any]
WaitUntil = Callable[[Callable[[], bool]], None]  # polls until true


class SharedBuffer:
    """Memory of this rank that all ranks map: first its vector, then the sum in this rank's chunk."""

    def __init__(self, size: int) -> None:
        self.box = SharedMailbox(size, 0)
        self.addresses: NDArray[np.int64] = np.empty(0, np.int64)  # of all ranks' buffers; MPI writes them
        self.readers_done = MPI.REQUEST_NULL  # complete when every rank has copied the sum

    def fits(self, size: int) -> bool:
        """Return True if it has room for `size` bytes and every rank has copied its last sum."""
        return self.box.memory.size >= size and self.readers_done.Test()


class SharedMemoryAllreduce:
    """The shared buffers of all ranks; a rank has as many buffers as it has sums in progress.

    Args:
        signals: an MPI communicator that nothing else uses; all its ranks can map each other's memory.
    """

    def __init__(self, signals: MPI.Comm) -> None:
        self._signals, self._rank, self._size = signals, signals.Get_rank(), signals.Get_size()
        self._mine: list[SharedBuffer] = []
        self._mapped: dict[tuple[int, ...], Bytes] = {}

    def close(self) -> list[NDArray[np.int64]]:
        """Close the buffers; return the arrays that MPI may still write into if a sum is in progress."""
        for buffer in self._mine:
            buffer.box.close()
        return [buffer.addresses for buffer in self._mine]

    def begin_sum(self, array: Array) -> Callable[[WaitUntil], None]:
        """Publish `array` (P,) to all ranks.

        Return a function that, given a way to wait, overwrites `array` with the sum over ranks.
        """
        buffer = self._free(array.nbytes)
        buffer.box.memory[: array.nbytes] = array.view(np.uint8)
        buffer.addresses = addresses = np.empty((self._size, buffer.box.address.size), np.int64)
        # Also the signal that all vectors are in place: it completes after every rank has started it.
        published = self._signals.Iallgather(buffer.box.address, addresses)

        def finish(wait: WaitUntil) -> None:
            wait(published.Test)
            vectors = [self._map(address)[: array.nbytes].view(array.dtype) for address in addresses]
            chunks = _chunks(array.size, self._size)
            self._add(array, vectors, chunks[self._rank])
            # Chunks of the sum may be read only after their ranks have written them.
            wait(self._signals.Ibarrier().Test)
            for rank in set(range(self._size)) - {self._rank}:
                array[chunks[rank]] = vectors[rank][chunks[rank]]
            # Not waited for: the next sum takes another buffer if ranks still read this one.
            buffer.readers_done = self._signals.Ibarrier()

        return finish

    def _add(self, array: Array, vectors: Sequence[Array], mine: slice) -> None:
        """Add this rank's chunk in rank order.

        Args:
            array: this rank's vector, (P,); overwritten in the chunk.
            vectors: buffers of all ranks, by rank; this rank's buffer is overwritten in the chunk.
            mine: chunk of this rank.
        """
        first, *others = (buffer[mine] for buffer in vectors)
        total = np.add(first, others[0], out=array[mine])
        for part in others[1:]:
            np.add(total, part, out=total)
        # Other ranks do not read this chunk of the buffer before the barrier.
        vectors[self._rank][mine] = total

    def _free(self, size: int) -> SharedBuffer:
        free = next((buffer for buffer in self._mine if buffer.fits(size)), None)
        if free is None:
            free = SharedBuffer(size)
            self._mine.append(free)
        return free

    def _map(self, address: NDArray[np.int64]) -> Bytes:
        key = tuple(address.tolist())
        if key not in self._mapped:
            self._mapped[key] = map_remote(address)
        return self._mapped[key]


def _chunks(values: int, ranks: int) -> list[slice]:
    ends = np.cumsum([0, *(len(part) for part in np.array_split(np.empty(values, np.bool_), ranks))])
    return [slice(start, end) for start, end in pairwise(ends.tolist())]
