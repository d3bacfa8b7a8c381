"""Prototype: the reproducible sum of ranks on one host through memory that all of them map."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray
from torch import Tensor, from_numpy

from nnlo_lib.comm.communicator import Request
from nnlo_lib.comm.mailbox import LARGE, Bytes, Mailbox, _visit
from nnlo_lib.comm.mpi import IN_STEP, MPICommunicator

Array = NDArray[Any]


class Board:
    """Memory of this rank that all ranks map: first its vector, then in this rank's chunk the sum."""

    def __init__(self, size: int) -> None:
        self.box = Mailbox(size, 0)
        self.read = MPI.REQUEST_NULL  # until every rank has copied the sum

    def fits(self, size: int) -> bool:
        return self.box.memory.size >= size and self.read.Test()


class SharedSumCommunicator(MPICommunicator):
    """As MPICommunicator, for ranks of one host."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._boards: list[Board] = []
        self._mapped: dict[tuple[int, ...], Bytes] = {}
        self._signals = self._comm.Dup()

    def _scattered_sum(self, vector: Tensor) -> Request:
        if vector.nbytes < LARGE or not all(self._neighbours):
            return super()._scattered_sum(vector)
        array = vector.cpu().numpy()
        board = self._board(array.nbytes)
        board.box.memory[: array.nbytes] = array.view(np.uint8)
        addresses = np.empty((self.size, 4), np.int64)
        posted = self._signals.Iallgather(board.box.address, addresses)

        def finish() -> None:
            with self._timed():
                self._poll(posted.Test, "an all-reduce", self._others(), IN_STEP)
                self._share(array, [self._map(address).view(array.dtype) for address in addresses])
                board.read = self._signals.Ibarrier()
            if vector.is_cuda:
                vector.copy_(from_numpy(array))

        return Request(finish)

    def _share(self, array: Array, boards: Sequence[Array]) -> None:
        """Add one's chunk in rank order, show it to all, and copy theirs."""
        ends = np.cumsum([0] + [chunk.size for chunk in np.array_split(array, self.size)])
        chunks = [slice(start, end) for start, end in pairwise(ends)]
        mine = chunks[self.rank]
        np.add(boards[0][mine], boards[1][mine], out=array[mine])
        for board in boards[2:]:
            np.add(array[mine], board[mine], out=array[mine])
        boards[self.rank][mine] = array[mine]
        self._poll(self._signals.Ibarrier().Test, "an all-reduce", self._others(), IN_STEP)
        for rank, chunk in enumerate(chunks):
            if rank != self.rank:
                array[chunk] = boards[rank][chunk]

    def _board(self, size: int) -> Board:
        free = next((board for board in self._boards if board.fits(size)), None)
        if free is None:
            free = Board(size)
            self._boards.append(free)
        return free

    def _map(self, address: Array) -> Bytes:
        key = tuple(address.tolist())
        if key not in self._mapped:
            self._mapped[key] = _visit(address)
        return self._mapped[key]
