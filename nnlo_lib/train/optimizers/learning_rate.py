"""Learning rate of every step: scaling by the number of workers, warm-up and schedule."""

from collections.abc import Sequence
from math import ceil

from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.config.schedule import PlateauScheduleConfig, WarmUpConfig
from nnlo_lib.config.train import TrainConfig
from nnlo_lib.state.jsonl_table import TableRow
from nnlo_lib.state.run_log import RunLog
from nnlo_lib.train.optimizers.schedules import SchedulePosition, learning_rate, num_plateau_drops


class LearningRateSchedule:
    """Learning rate as a function of the step and of the history; the same on all ranks.

    Args:
        train: settings of the training: optimizer, schedule, warm-up, scaling and number of epochs.
        workers: number of workers.
        steps_per_round: steps between two synchronizations of the algorithm.
    """

    def __init__(self, train: TrainConfig, workers: int, steps_per_round: int) -> None:
        self._train, self._steps_per_round, self._falls = train, steps_per_round, 0
        self._workers = workers
        self._lr = train.scaled_lr(workers)

    def __call__(self, step: int, steps_per_epoch: int, worker_steps: int | None = None) -> float:
        """Return the learning rate of a step; it is constant within a round.

        Args:
            step: the step, counted from 0, that epoch and place in the epoch imply.
            steps_per_epoch: number of steps of an epoch in the same unit.
            worker_steps: steps of a worker before this one; another number than `step` if workers share the
                batches of an epoch, or after a change of the number of ranks. None: `step`.
        """
        train, size, done = self._train, self._steps_per_round, step if worker_steps is None else worker_steps
        at = SchedulePosition(
            step=done // size * size,
            epoch=step // size * size / steps_per_epoch,
            rounds_done=done // size,
            round=step // size,
            rounds=ceil(train.epochs * steps_per_epoch / size),
        )
        rate = learning_rate(train.schedule, self._lr, at, self._falls)
        if train.warm_up is None:
            return rate
        return rate * warm_up_factor(train.warm_up, at, steps_per_epoch)

    def log_scaling(self, journal: RunLog) -> None:
        """Log the learning rate scaled for the number of workers, if it differs from the optimizer's `lr`."""
        if self._lr != self._train.optimizer.lr:
            rule, lr = self._train.scale_lr, self._train.optimizer.lr
            journal.write(
                f"learning rate {self._lr:g}: {lr:g} scaled for {self._workers} workers (train.scale_lr: {rule})"
            )

    def update_plateau(self, comm: Communicator, rows: Sequence[TableRow]) -> None:
        """Update a plateau schedule from the history of rank 0; all ranks call it after each epoch."""
        if isinstance(self._train.schedule, PlateauScheduleConfig):
            # Only rank 0 has the history.
            self._falls = comm.gather(num_plateau_drops(self._train.schedule, rows))[0]


def warm_up_factor(rule: WarmUpConfig, at: SchedulePosition, steps_per_epoch: int) -> float:
    """Return the factor, `rule.start` to 1, by which warm-up multiplies the learning rate of a round.

    Args:
        rule: settings of the warm-up.
        at: position of the training.
        steps_per_epoch: number of steps of an epoch; warm-up by epochs ends after a whole number of steps.
    """
    done, steps = at.step, rule.steps
    if steps is None:
        done, steps = round(at.epoch * steps_per_epoch), round((rule.epochs or 0) * steps_per_epoch)
    return rule.start + (1 - rule.start) * done / steps if done < steps else 1.0
