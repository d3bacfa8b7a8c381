"""A counter on rank 0 that all ranks read and increment, without waiting for each other."""

import numpy as np
from mpi4py import MPI


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
