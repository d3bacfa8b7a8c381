"""Learning rate of every step: scaling by the number of workers, warm-up and schedule.

Schedules are functions of the position in a training and, for plateau, of its history.
"""

from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache
from math import ceil, cos, inf, pi
from typing import Literal, NamedTuple

from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.config import schedule as rules
from nnlo_lib.config.train import TrainConfig
from nnlo_lib.core.text_format import plural
from nnlo_lib.state.training_records import RunLog, TableRow


class SchedulePosition(NamedTuple):
    """Position of a training for a schedule."""

    step: int  # steps of a worker before the current round, whatever the number of ranks was
    epoch: float  # completed epochs, with fraction, before the current round
    rounds_done: int  # rounds of a worker before the current round, whatever the number of ranks was
    round: int  # current round as the epoch implies it, counted from 0
    rounds: int  # number of rounds of the training

    @property
    def fraction_done(self) -> float:
        """Fraction of the rounds that are completed; 1 in the last round and after it."""
        # Rounds count from 0, so the last of `rounds` rounds has the final value.
        return min(1.0, self.round / max(1, self.rounds - 1))

    def elapsed(self, unit: Literal["epochs", "steps"]) -> float:
        """Return the number of completed epochs (with fraction) or steps."""
        return self.epoch if unit == "epochs" else self.step


class LearningRateSchedule:
    """Learning rate as a function of the step and of the history; the same on all ranks."""

    def __init__(self, train: TrainConfig, workers: int, steps_per_round: int) -> None:
        self._train, self._workers, self._steps_per_round, self._falls = train, workers, steps_per_round, 0
        self._lr = train.scaled_lr(workers)

    def __call__(self, step: int, steps_per_epoch: int, worker_steps: int | None = None) -> float:
        """Return the learning rate of a step, counted from 0 as epoch and place in the epoch imply; constant within a round.

        `worker_steps`, by default `step`, are the steps of a worker before this one: another number if workers share the
        batches of an epoch, or after a change of the number of ranks.
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
        if rule := train.warm_up:
            warmed, steps = at.step, rule.steps
            if steps is None:
                warmed, steps = round(at.epoch * steps_per_epoch), round((rule.epochs or 0) * steps_per_epoch)
            rate *= rule.start + (1 - rule.start) * warmed / steps if warmed < steps else 1.0
        return rate

    def log_scaling(self, journal: RunLog) -> None:
        """Log the learning rate scaled for the number of workers, if it differs from the optimizer's `lr`."""
        if self._lr != self._train.optimizer.lr:
            rule, lr = self._train.scale_lr, self._train.optimizer.lr
            journal.write(
                f"learning rate {self._lr:g}: {lr:g} scaled for {plural(self._workers, 'worker')} (train.scale_lr: {rule})"
            )

    def update_plateau(self, comm: Communicator, rows: Sequence[TableRow]) -> None:
        """Update a plateau schedule from the history of rank 0; all ranks call it after each epoch."""
        if isinstance(self._train.schedule, rules.PlateauScheduleConfig):
            # Only rank 0 has the history.
            self._falls = comm.gather(num_plateau_drops(self._train.schedule, rows))[0]


def learning_rate(
    schedule: rules.ScheduleConfig, start: float, at: SchedulePosition, falls: int = 0
) -> float:
    """Return the learning rate of a round."""
    match schedule:
        case rules.LinearScheduleConfig():
            return start + at.fraction_done * (schedule.final - start)
        case rules.LogScheduleConfig():
            return float(start * (schedule.final / start) ** at.fraction_done)
        case rules.DiminishingScheduleConfig():
            return _diminished(start, schedule.mu, at.rounds_done)
        case rules.StepScheduleConfig():
            rate = float(start * schedule.factor ** (at.elapsed(schedule.unit) // schedule.every))
            return max(rate, min(start, schedule.min_lr))
        case rules.MultiStepScheduleConfig():
            passed = bisect_right(schedule.milestones, at.elapsed(schedule.unit))
            return float(start * schedule.factor**passed)
        case rules.ExponentialScheduleConfig():
            return float(start * schedule.factor ** int(at.elapsed(schedule.unit)))
        case rules.CosineScheduleConfig():
            return _half_cosine(start, schedule.final, _phase(schedule, at))
        case rules.PolynomialScheduleConfig():
            return float(schedule.final + (start - schedule.final) * (1 - at.fraction_done) ** schedule.power)
        case rules.OneCycleScheduleConfig():
            # The round of the peak, as in torch's OneCycleLR.
            peak = max(0.0, schedule.rise * at.rounds - 1)
            if at.round < peak:
                return start * _half_cosine(schedule.start, 1, at.round / peak)
            # Less than one round remains after a late peak, and no round in a training of a single round.
            fall = at.rounds - 1 - peak
            phase = min(1.0, (at.round - peak) / fall) if fall > 0 else 0.0
            return start * _half_cosine(1, schedule.final, phase)
        case rules.PlateauScheduleConfig():
            rate = start
            for _ in range(falls):
                rate = max(rate * schedule.factor, min(start, schedule.min_lr))
            return rate
    return start  # constant


# The loop runs over all earlier rounds, but the rate changes only once per round.
@lru_cache(maxsize=64)
def _diminished(start: float, mu: float, round: int) -> float:
    rate = start
    for _ in range(round):
        rate *= 1 - mu * rate
    return rate


def _half_cosine(start: float, end: float, phase: float) -> float:
    """Return a value of half a cosine wave, from `start` at phase 0 to `end` at phase 1."""
    return end + (start - end) * (1 + cos(pi * phase)) / 2


def _phase(schedule: rules.CosineScheduleConfig, at: SchedulePosition) -> float:
    """Return the completed fraction of the current period; without restarts, the training is one period."""
    if schedule.restart is None:
        return at.fraction_done
    passed, period = at.elapsed(schedule.unit), schedule.restart
    if schedule.stretch == 1:
        return passed % period / period
    while passed >= period:
        passed, period = passed - period, period * schedule.stretch
    return passed / period


def num_plateau_drops(schedule: rules.PlateauScheduleConfig, rows: Sequence[TableRow]) -> int:
    """Return the number of drops of the learning rate after these rows of the history (one per epoch)."""
    sign = -1.0 if schedule.larger_is_better else 1.0
    # Computed again from all rows, so that a resumed run needs no state.
    best, waited, cooling, count = inf, 0, 0, 0
    for value in (sign * float(row[schedule.metric]) for row in rows):
        better = value < best - schedule.min_delta
        best = value if better else best
        waited = 0 if better or cooling else waited + 1
        cooling = max(0, cooling - 1)
        if waited >= schedule.patience:
            waited, cooling, count = 0, schedule.cooldown, count + 1
    return count
