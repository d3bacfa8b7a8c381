"""All ranks of an allocation: rank 0 is the coordinator, the following ranks form rank groups."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TypeVar

from mpi4py import MPI

from nnlo_lib.comm.communicator import PeerLostError
from nnlo_lib.core.process_identity import ProcessIdentity
from nnlo_lib.core.process_state import ProcessState
from nnlo_lib.executors.mpi_pool.protocol import Messenger

T = TypeVar("T")
COORDINATOR_RANK = 0
MESSAGE_POLL_INTERVAL_S = 0.01  # between two checks for a message
LIVENESS_CHECK_INTERVAL_S = 0.5  # between two checks of the processes


class PoolWorld:
    """MPI's world, divided into rank groups of `size` ranks. All ranks must construct it together.

    Attributes:
        size: number of ranks of a rank group.
        rank: number of this rank in MPI's world.
        ranks: number of ranks in MPI's world.
        processes: identity of the process of each rank.
        group: number of this rank's group, from 0; -1 for the coordinator.
        comm: MPI communicator of this rank's group; the coordinator's communicator has one rank.
    """

    def __init__(self, size: int) -> None:
        all_ranks, self.size = MPI.COMM_WORLD, size
        self.rank, self.ranks = all_ranks.Get_rank(), all_ranks.Get_size()
        self.messenger = Messenger(all_ranks)
        self.processes = [
            ProcessIdentity(**fields) for fields in all_ranks.allgather(asdict(ProcessIdentity.current()))
        ]
        self.group = (self.rank - 1) // size
        self.comm = all_ranks.Split(0 if self.rank == COORDINATOR_RANK else 1 + self.group, self.rank)

    @property
    def groups(self) -> range:
        """Numbers of the rank groups."""
        return range((self.ranks - 1) // self.size)

    def members(self, group: int) -> range:
        """Return the ranks of a rank group, its leader first."""
        return range(1 + group * self.size, 1 + (group + 1) * self.size)

    def ended_ranks(self, ranks: Sequence[int]) -> list[int]:
        """Return the ranks that are known to have ended; ranks on other hosts cannot be observed."""
        return [rank for rank in ranks if self.processes[rank].is_dead]

    def stopped_ranks(self, ranks: Sequence[int]) -> list[int]:
        """Return the ranks of this host that a signal or a debugger has stopped."""
        local = [rank for rank in ranks if self.processes[rank].is_local]
        return [rank for rank in local if ProcessState.of(self.processes[rank].pid).is_stopped]

    def can_observe(self, ranks: Sequence[int]) -> bool:
        """Return True if it can be observed whether each of the ranks has ended."""
        return all(self.processes[rank].is_local for rank in ranks)

    def describe_rank(self, rank: int) -> str:
        """Return a rank with its process and host as text."""
        return f"rank {rank} (process {self.processes[rank].pid} on {self.processes[rank].host})"

    def wait_for(self, done: Callable[[], T | None], awaited: Sequence[int]) -> T:
        """Call `done` until its value is not None, and return the value.

        Raises:
            PeerLostError: if one of the `awaited` ranks ends first.
        """
        checked_at = time.monotonic()
        while (found := done()) is None:
            # A blocking receive would occupy the core that trainings on the same host may use.
            time.sleep(MESSAGE_POLL_INTERVAL_S)
            if time.monotonic() - checked_at > LIVENESS_CHECK_INTERVAL_S:
                if dead := self.ended_ranks(awaited):
                    raise PeerLostError(f"{self.describe_rank(dead[0])} has ended")
                checked_at = time.monotonic()
        return found
