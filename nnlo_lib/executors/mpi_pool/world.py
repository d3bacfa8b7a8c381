"""Ranks of the pool: rank 0 is the coordinator, the following ranks form rank groups; their messages and heartbeats."""

import json
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar

from mpi4py import MPI

from nnlo_lib.comm.communicator import PeerLostError
from nnlo_lib.core.process import ProcessIdentity, ProcessState

T = TypeVar("T")
COORDINATOR_RANK = 0
MESSAGE_POLL_INTERVAL_S = 0.01  # between two checks for a message
LIVENESS_CHECK_INTERVAL_S = 0.5  # between two checks of the processes
GROUP_HEARTBEAT_INTERVAL_S = 5.0  # between two heartbeats
# Upper limit of the time that one check adds, because the checking process may have been suspended.
MAX_CREDITED_GAP_S = 1.0
ASSIGN_TAG, QUIT_TAG, STOP_TAG, REPORT_TAG, GROUP_LOST_TAG, TRAIN_TAG = range(6)
FAILURE_TAG_BASE = 100  # the tag of a training's failure message is this plus the number of the training


class PoolWorld:
    """MPI's world, divided into rank groups of `size` ranks. All ranks must construct it together.

    Attributes:
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

    @property
    def is_leader(self) -> bool:
        """Whether this rank is the first of its group."""
        return self.rank == self.members(self.group)[0]

    def ended_ranks(self, ranks: Sequence[int]) -> list[int]:
        """Return the ranks that are known to have ended; ranks on other hosts cannot be observed."""
        return [rank for rank in ranks if self.processes[rank].is_dead]

    def is_stopped(self, rank: int) -> bool:
        """Return True if a signal or a debugger has stopped a rank of this host."""
        process = self.processes[rank]
        return process.is_local and ProcessState.of(process.pid).is_stopped

    def describe_rank(self, rank: int) -> str:
        """Return a rank with its process and host as text."""
        return f"rank {rank} (process {self.processes[rank].pid} on {self.processes[rank].host})"

    def wait_for(self, done: Callable[[], T | None], awaited: Sequence[int]) -> T:
        """Call `done` until its value is not None, and return the value. Raises PeerLostError if an `awaited` rank ends first."""
        checked_at = time.monotonic()
        while (found := done()) is None:
            # A blocking receive would occupy the core that trainings on the same host may use.
            time.sleep(MESSAGE_POLL_INTERVAL_S)
            if time.monotonic() - checked_at > LIVENESS_CHECK_INTERVAL_S:
                if dead := self.ended_ranks(awaited):
                    raise PeerLostError(f"{self.describe_rank(dead[0])} has ended")
                checked_at = time.monotonic()
        return found


class Messenger:
    """Sends and receives small messages, which may be any JSON values; neither the sender nor the receiver waits."""

    def __init__(self, comm: MPI.Comm) -> None:
        self._comm, self._pending_sends = comm, list[MPI.Request]()

    def send(self, item: Any, to: int, tag: int) -> None:
        """Start to send a message to a rank of MPI's world; do not wait for its arrival."""
        # A request keeps the buffer of its message alive, which MPI may read until the send has completed.
        self._pending_sends = [request for request in self._pending_sends if not request.Test()]
        self._pending_sends.append(self._comm.Isend([json.dumps(item).encode(), MPI.BYTE], to, tag))

    def linger(self, seconds: float) -> None:
        """Let MPI transfer the messages that were sent, before this process ends."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            # MPI transfers messages only inside its calls.
            self._comm.Iprobe(MPI.ANY_SOURCE, MPI.ANY_TAG)
            time.sleep(seconds / 100)

    def has_message(self, source: int, tag: int) -> bool:
        """Return True if a message can be received."""
        return self._comm.Iprobe(source, tag)

    def receive(self, source: int, tag: int) -> tuple[int, Any] | None:
        """Return the source and the content of a message, or None if no message has arrived."""
        status = MPI.Status()
        if not self._comm.Iprobe(source, tag, status):
            return None
        text = bytearray(status.Get_count(MPI.BYTE))
        # No other thread receives, so this is the message whose size was probed.
        self._comm.Recv([text, MPI.BYTE], status.Get_source(), tag)
        return status.Get_source(), json.loads(text)


def start_heartbeat(path: Path) -> None:
    """Touch a file, which other hosts can observe, as long as this process lives."""

    def beat() -> None:
        while True:
            time.sleep(GROUP_HEARTBEAT_INTERVAL_S)
            with suppress(OSError):  # the file system may be unavailable for a while
                os.utime(path)

    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    Thread(target=beat, daemon=True).start()


class HeartbeatMonitor:
    """Measures by the local clock how long another process's heartbeat file has not changed."""

    def __init__(self, path: Path) -> None:
        self._path, self._beat = path, 0
        self._polled_at, self.seconds = time.monotonic(), 0.0

    def poll(self) -> float:
        """Return the seconds without a change of the file; each check adds at most MAX_CREDITED_GAP_S."""
        beat, now = self._beat, time.monotonic()
        # The file is opened, because NFS queries the server only then.
        with suppress(OSError), self._path.open("rb") as file:
            self._beat = os.fstat(file.fileno()).st_mtime_ns
        self.seconds = (
            self.seconds + min(now - self._polled_at, MAX_CREDITED_GAP_S) if beat == self._beat else 0.0
        )
        self._polled_at = now
        return self.seconds
