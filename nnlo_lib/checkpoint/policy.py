"""When the next checkpoint is due, and which checkpoints are kept."""

import time

from nnlo_lib.checkpoint.checkpoint_manifest import CheckpointManifest
from nnlo_lib.config.checkpoint import CheckpointConfig


class SaveInterval:
    """Counts seconds, steps or epochs since the last checkpoint.

    Args:
        config: settings of checkpoints.
        watches: True if seconds count within an epoch; otherwise they count only at the end of an epoch, where
            saving cannot change the result of the training.
        within: False if steps count only at the end of an epoch, too.
    """

    def __init__(self, config: CheckpointConfig, watches: bool, within: bool = True) -> None:
        self._config, self._watches, self._within = config, watches, within
        self.mark_saved(0, 0)

    def mark_saved(self, step: int, epoch: int) -> None:
        """Restart the count at this step and epoch."""
        self._time, self._step, self._epoch = time.monotonic(), step, epoch

    def is_due(self, step: int) -> bool:
        """Return True if a checkpoint is due within an epoch."""
        if self._config.steps is not None:
            return self._within and self._has_stepped(step)
        return self._watches and self._is_overdue

    def is_due_after_epoch(self, epoch: int, step: int = 0) -> bool:
        """Return True if a checkpoint is due when `epoch` epochs have just ended, after `step` steps."""
        epochs = self._config.epochs
        due = epochs is not None and epoch - self._epoch >= epochs
        return self._is_overdue or self._has_stepped(step) or due

    def _has_stepped(self, step: int) -> bool:
        return self._config.steps is not None and step - self._step >= self._config.steps

    @property
    def _is_overdue(self) -> bool:
        return self._config.seconds is not None and time.monotonic() - self._time >= self._config.seconds


def checkpoints_to_keep(config: CheckpointConfig, checkpoints: dict[int, CheckpointManifest]) -> set[int]:
    """Return the numbers of the checkpoints to keep.

    These are the newest `keep`, every `keep_every`-th, and the best of the checkpoints that end an epoch.
    """
    numbers = sorted(checkpoints)
    newest = set(numbers[-config.keep :])
    # A number belongs to a checkpoint for good, so that the choice does not depend on earlier removals.
    permanent = {number for number in numbers if config.keep_every and number % config.keep_every == 0}
    return newest | permanent | _best(config, checkpoints)


def _best(config: CheckpointConfig, checkpoints: dict[int, CheckpointManifest]) -> set[int]:
    rule = config.best_rule
    values = {
        number: manifest.metrics[rule.metric]
        for number, manifest in checkpoints.items()
        if rule and rule.metric in manifest.metrics
    }
    if not (rule and values):
        return set()
    choose = max if rule.larger_is_better else min
    return {choose(values, key=lambda number: values[number])}
