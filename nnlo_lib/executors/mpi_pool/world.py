"""All ranks of an allocation: rank 0 coordinates, the others are blocks, one after the other."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TypeVar

from mpi4py import MPI

from nnlo_lib.comm.communicator import PeerLostError
from nnlo_lib.core.process_identity import ProcessIdentity
from nnlo_lib.executors.mpi_pool.protocol import Messenger

T = TypeVar("T")
COORDINATOR_RANK = 0
MESSAGE_POLL_INTERVAL_S = 0.01  # seconds between two looks for a message
LIVENESS_CHECK_INTERVAL_S = 0.5  # seconds between two looks at the processes


class PoolWorld:
    """MPI's world, cut into blocks of `size` ranks. All ranks create it together.

    block: the number of this rank's; comm: the MPI communicator of its ranks. The coordinator has neither.
    """

    def __init__(self, size: int) -> None:
        everyone, self.size = MPI.COMM_WORLD, size
        self.rank, self.ranks = everyone.Get_rank(), everyone.Get_size()
        self.messenger = Messenger(everyone)
        self.processes = [
            ProcessIdentity(**fields) for fields in everyone.allgather(asdict(ProcessIdentity.current()))
        ]
        self.block = (self.rank - 1) // size
        self.comm = everyone.Split(0 if self.rank == COORDINATOR_RANK else 1 + self.block, self.rank)

    @property
    def blocks(self) -> range:
        """The numbers of the blocks."""
        return range((self.ranks - 1) // self.size)

    def members(self, block: int) -> range:
        """Return the ranks of a block, its leader first."""
        return range(1 + block * self.size, 1 + (block + 1) * self.size)

    def ended_ranks(self, ranks: Sequence[int]) -> list[int]:
        """Return which of some ranks are known to have ended: those of other hosts never are."""
        return [rank for rank in ranks if self.processes[rank].is_dead]

    def can_observe(self, ranks: Sequence[int]) -> bool:
        """Say whether all of some ranks would be known to have ended."""
        return all(self.processes[rank].is_local for rank in ranks)

    def describe_rank(self, rank: int) -> str:
        """Name a rank for a person."""
        return f"rank {rank} (process {self.processes[rank].pid} on {self.processes[rank].host})"

    def wait_for(self, done: Callable[[], T | None], whom: Sequence[int]) -> T:
        """Return what `done` returns as soon as it is something. Raises PeerLostError if one of `whom` ends before."""
        looked = time.monotonic()
        while (found := done()) is None:
            time.sleep(MESSAGE_POLL_INTERVAL_S)
            if time.monotonic() - looked > LIVENESS_CHECK_INTERVAL_S:
                if dead := self.ended_ranks(whom):
                    raise PeerLostError(f"{self.describe_rank(dead[0])} has ended")
                looked = time.monotonic()
        return found
