"""What makes a rank of a block pause in the middle of a training."""

import time
from collections.abc import Callable
from threading import Event

from nnlo_lib.comm.communicator import PeerLostError
from nnlo_lib.train.preemption import StopFlag
from nnlo_lib.tune.blocks.post import STOP
from nnlo_lib.tune.blocks.world import COORDINATOR, LOOK, World

GLANCE = 0.02  # seconds between two looks for messages, which cost microseconds


class Wish(StopFlag):
    """A signal, the time limit, the coordinator's word or its end; a fellow's failure too, which the next call raises.

    failed: says whether a fellow has failed; lost: that the run folder is another's.
    """

    def __init__(self, world: World, limit: float = float("inf")) -> None:
        super().__init__(limit)
        self._world, self.lost = world, Event()
        self.failed: Callable[[], bool] = bool
        self._glanced = self._looked = 0.0

    @property
    def first(self) -> str:
        """The name of the first signal that came, empty if none did."""
        self._told()
        return self.signal or ""

    def __call__(self) -> bool:
        """Say whether to pause. Raises PeerLostError if the run folder is another's: nothing may be written there."""
        if self.lost.is_set():
            raise PeerLostError("the run folder is gone, or another nnlo took it over")
        return super().__call__() or self._told()

    def _told(self) -> bool:
        now = time.monotonic()
        if now - self._glanced < GLANCE:
            return False
        self._glanced = now
        if self._world.post.holds(COORDINATOR, STOP) or self._is_orphan(now):
            self.signal = self.signal or "SIGTERM"
            return True
        return self.failed()

    def _is_orphan(self, now: float) -> bool:
        if now - self._looked < LOOK:
            return False
        self._looked = now
        return bool(self._world.dead([COORDINATOR]))
