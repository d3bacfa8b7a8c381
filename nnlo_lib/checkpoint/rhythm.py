"""When the next checkpoint is due."""

import time

from nnlo_lib.config import Checkpoint


class Rhythm:
    """Counts seconds, steps or epochs since the last checkpoint.

    watches: whether time counts within an epoch; else only at its end, where saving cannot change what happens next.
    """

    def __init__(self, wish: Checkpoint, watches: bool) -> None:
        self._wish, self._watches = wish, watches
        self.saved(0, 0)

    def saved(self, step: int, epoch: int) -> None:
        """Count from here."""
        self._time, self._step, self._epoch = time.monotonic(), step, epoch

    def due(self, step: int) -> bool:
        """Say whether a checkpoint is due within an epoch."""
        if self._wish.steps is not None:
            return step - self._step >= self._wish.steps
        return self._watches and self._late

    def due_after(self, epoch: int) -> bool:
        """Say whether one is due when `epoch` epochs have just ended."""
        epochs = self._wish.epochs
        return self._late or (epochs is not None and epoch - self._epoch >= epochs)

    @property
    def _late(self) -> bool:
        return self._wish.seconds is not None and time.monotonic() - self._time >= self._wish.seconds
