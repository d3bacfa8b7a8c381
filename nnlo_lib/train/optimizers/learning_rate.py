"""Learning rate of every step: scaling by the number of workers, warm-up and schedule."""

from collections.abc import Sequence
from math import ceil

from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.config.schedule import PlateauScheduleConfig, WarmUpConfig
from nnlo_lib.config.train import TrainConfig
from nnlo_lib.state.jsonl_table import TableRow
from nnlo_lib.state.run_log import RunLog
from nnlo_lib.train.optimizers.schedules import SchedulePosition, learning_rate, num_plateau_drops

LR_SCALING_EXPONENTS = {"none": 0.0, "linear": 1.0, "sqrt": 0.5}


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
        self._lr = train.optimizer.lr * workers ** LR_SCALING_EXPONENTS[train.scale_lr]

    def __call__(self, step: int, steps_per_epoch: int) -> float:
        """Return the learning rate of `step`, counted from 0 over the run; it is constant within a round."""
        train, round = self._train, step // self._steps_per_round
        rounds = ceil(train.epochs * steps_per_epoch / self._steps_per_round)
        at = SchedulePosition(round * self._steps_per_round, steps_per_epoch, round, rounds)
        rate = learning_rate(train.schedule, self._lr, at, self._falls)
        return rate * warm_up_factor(train.warm_up, at) if train.warm_up else rate

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


def warm_up_factor(rule: WarmUpConfig, at: SchedulePosition) -> float:
    """Return the factor, `rule.start` to 1, by which warm-up multiplies the learning rate of a round."""
    steps = rule.steps or round((rule.epochs or 0) * at.steps_per_epoch)
    return rule.start + (1 - rule.start) * at.step / steps if at.step < steps else 1.0
