"""Condition under which a rank of a rank group stops during a training."""

import time
from collections.abc import Callable
from threading import Event

from nnlo_lib.comm.communicator import PeerLostError
from nnlo_lib.executors.mpi_pool.protocol import STOP_TAG
from nnlo_lib.executors.mpi_pool.world import COORDINATOR_RANK, LIVENESS_CHECK_INTERVAL_S, PoolWorld
from nnlo_lib.train.preemption import StopFlag

MESSAGE_CHECK_INTERVAL_S = 0.02  # between two checks for messages; a check takes microseconds


class PoolStopFlag(StopFlag):
    """Stop condition of a group's rank: a signal, the time limit, the coordinator's stop message or its end.

    The failure of another rank of the group also stops the training; the next communication call then raises.

    Attributes:
        lost: set when the lease of the run folder is lost.
        peer_failed: returns True if another rank of the group has failed.
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
        """Return True if the rank must stop.

        Raises:
            PeerLostError: if the lease is lost, so that the rank must not write to the run folder.
        """
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
        if self._world.messenger.has_message(COORDINATOR_RANK, STOP_TAG) or self._is_orphan(now):
            self.signal = self.signal or "SIGTERM"
            return True
        return self.peer_failed()

    def _is_orphan(self, now: float) -> bool:
        if now - self._coordinator_checked_at < LIVENESS_CHECK_INTERVAL_S:
            return False
        self._coordinator_checked_at = now
        return bool(self._world.ended_ranks([COORDINATOR_RANK]))
