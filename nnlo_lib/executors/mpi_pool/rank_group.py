"""Rank group: its ranks train together, one task after the other, and keep no state between tasks; when they stop."""

import gc
import time
from collections.abc import Callable
from threading import Event

import torch
from mpi4py import MPI

from nnlo_lib.comm.communicator import PeerLostError
from nnlo_lib.comm.mpi.communicator import ABANDONED_COMMUNICATORS, MPICommunicator
from nnlo_lib.core.errors import UserError
from nnlo_lib.executors.mpi_pool.world import (
    COORDINATOR_RANK,
    FAILURE_TAG_BASE,
    LIVENESS_CHECK_INTERVAL_S,
    STOP_TAG,
    PoolWorld,
)
from nnlo_lib.executors.trial_job import redirect_output
from nnlo_lib.train.rank import reduction_mode, train_rank
from nnlo_lib.train.rank_process import StopFlag, register_rank, report_end, report_failure
from nnlo_lib.train.task import Task

MESSAGE_CHECK_INTERVAL_S = 0.02  # between two checks for messages; a check takes microseconds
GROUP_SYNC_TIMEOUT_S = 600.0  # for the ranks of a group to synchronize after a training


class PoolStopFlag(StopFlag):
    """Stop condition of a group's rank: a signal, the time limit, the coordinator's stop message or its end.

    The failure of another rank of the group also stops the training; the next communication call then raises. `lost` is set when the
    lease of the run folder is lost.
    """

    def __init__(self, world: PoolWorld, limit: float = float("inf")) -> None:
        super().__init__(limit)
        self._world, self.lost = world, Event()
        # `bool()` is False: outside a training, no rank has failed.
        self.peer_failed: Callable[[], bool] = bool
        self._messages_checked_at = self._coordinator_checked_at = 0.0

    @property
    def first(self) -> str:
        """Name of the first signal, or an empty string; a stop by the coordinator counts as SIGTERM."""
        self._stop_requested()
        return self.signal or ""

    def __call__(self) -> bool:
        """Return True if the rank must stop. Raises PeerLostError if the lease is lost: the rank must not write to the run folder."""
        if self.lost.is_set():
            raise PeerLostError(
                "the lease of the run folder is lost: the folder is missing, or another nnlo process took it over"
            )
        return super().__call__() or self._stop_requested()

    def _stop_requested(self) -> bool:
        now = time.monotonic()
        if now - self._messages_checked_at < MESSAGE_CHECK_INTERVAL_S:
            return False
        self._messages_checked_at = now
        must_stop = self._world.messenger.has_message(COORDINATOR_RANK, STOP_TAG)
        if now - self._coordinator_checked_at >= LIVENESS_CHECK_INTERVAL_S:
            self._coordinator_checked_at = now
            must_stop = must_stop or bool(self._world.ended_ranks([COORDINATOR_RANK]))
        if must_stop:
            self.signal = self.signal or "SIGTERM"
        return must_stop or self.peer_failed()


class RankGroup:
    """One rank of a rank group; trains tasks together with the other ranks."""

    def __init__(self, world: PoolWorld, stop: PoolStopFlag) -> None:
        self._world, self._stop = world, stop
        self._group_comm = MPICommunicator(world.comm, timeout=GROUP_SYNC_TIMEOUT_S)
        self._number = FAILURE_TAG_BASE

    def first_fault(self, fault: str) -> str:
        """Return the first non-empty `fault` of a rank of the group, or an empty string. All its ranks must call it."""
        return next(filter(None, self._group_comm.gather(fault)), "")

    def train(self, task: Task) -> list[int]:
        """Train a task; return the exit status that each rank of the group would have in its own process, and has written as usual.

        Raises PeerLostError if the group is broken.
        """
        # All ranks count the same trainings, so a late failure message of an earlier one has another tag.
        self._number += 1
        self._stop.peer_failed = lambda: bool(self._peer_failure())
        # On a communicator of its own, a training cannot receive messages that a failed one left behind.
        ranks = self._group_comm.duplicate()
        with redirect_output(task.paths.trial_log):
            status, comm, failed = self._try(task, ranks)
        endings = self._group_comm.gather([status, failed])
        if any(failed for _, failed in endings):
            # After a failure, MPI may still write into buffers of the communicator, so it is not freed.
            comm.abandon() if comm else ABANDONED_COMMUNICATORS.append(ranks)
        elif comm:
            comm.free()
        gc.collect()
        return [status for status, _ in endings]

    def _try(self, task: Task, ranks: MPI.Intracomm) -> tuple[int, MPICommunicator | None, bool]:
        """Train; return the status, the communicator, and True if this rank failed.

        A failure is reported to the other ranks of the group.
        """
        comm, parallel = None, task.run.parallel
        try:
            register_rank(task.state, self._group_comm.rank)
            torch.set_num_threads(parallel.threads_per_rank)
            comm = MPICommunicator(ranks, reduction_mode(task.run), parallel.peer_timeout, self._peer_failure)
            if (parallel.transport, parallel.ranks) != ("mpi", comm.size):
                raise UserError(
                    f"parallel: {parallel.ranks} ranks with transport {parallel.transport} cannot be trained by a rank group, which "
                    f"has {comm.size} ranks with transport mpi; use another --executor"
                )
            done = train_rank(task, comm, self._stop)
            return report_end(task.state, comm.rank, done, self._stop.signal), comm, False
        # SystemExit and KeyboardInterrupt included: the other ranks wait for this one.
        except BaseException as error:
            for rank in self._world.members(self._world.group):
                if rank != self._world.rank:
                    self._world.messenger.send(self._group_comm.rank, rank, self._number)
            return report_failure(task.state, self._group_comm.rank, error), comm, True

    def _peer_failure(self) -> str:
        """Return a message if another rank has failed, otherwise an empty string."""
        return (
            "another rank of the rank group has failed"
            if self._world.messenger.has_message(MPI.ANY_SOURCE, self._number)
            else ""
        )
