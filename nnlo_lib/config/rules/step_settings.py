"""Checks that the algorithm uses the settings of the learning rate."""

from collections.abc import Iterator
from typing import Any

from nnlo_lib.config.algorithm_base import StepOwner
from nnlo_lib.config.base import ConfigFault
from nnlo_lib.config.schedule import ConstantScheduleConfig, DiminishingScheduleConfig

REASONS_WITHOUT_SCHEDULE: dict[StepOwner, str] = {
    "server's": "applies updates on the server, which does not support learning-rate schedules",
    "algorithm's": "has no optimizer: its step follows from algorithm.beta",
}

REASON_WITHOUT_OPTIMIZER = (
    "with `algorithm.optimizer` and `sync_every: 1` updates parameters only by the server's optimizer"
)


def step_setting_faults(run: Any) -> Iterator[ConfigFault]:
    """Yield the faults of a run (config.Run) in settings of the learning rate."""
    yield from _ignored_rate_faults(run.train, run.algorithm)
    yield from _diminishing_faults(run.worker_train, run.workers)


def _ignored_rate_faults(train: Any, algorithm: Any) -> Iterator[ConfigFault]:
    """Yield faults for settings of a learning rate that the algorithm does not use.

    Args:
        train: section `train` of the run (config.TrainConfig).
        algorithm: section `algorithm` of the run (config.BaseAlgorithmConfig).
    """
    name, row = algorithm.name, algorithm.capabilities
    has_optimizer = algorithm.uses_train_optimizer or algorithm.worker_optimizer
    if not has_optimizer and row.step != "algorithm's" and train.scale_lr != "none":
        yield ConfigFault(
            f"{name} {REASON_WITHOUT_OPTIMIZER}; set `train.scale_lr: none`", ("train", "scale_lr")
        )
    if row.supports_schedule:
        return
    why = f"{name} {REASONS_WITHOUT_SCHEDULE[row.step]}"
    if not isinstance(train.schedule, ConstantScheduleConfig):
        yield ConfigFault(f"{why}; set `train.schedule.name: constant`", ("train", "schedule"))
    if train.warm_up:
        yield ConfigFault(f"{why}; remove `train.warm_up`", ("train", "warm_up"))
    if row.step == "algorithm's" and train.scale_lr != "none":
        yield ConfigFault(f"{why}; set `train.scale_lr: none`", ("train", "scale_lr"))


def _diminishing_faults(train: Any, workers: int) -> Iterator[ConfigFault]:
    """Yield the fault of a diminishing schedule of which the second learning rate is 0 or negative.

    Args:
        train: section `train` of the run (config.TrainConfig).
        workers: number of workers.
    """
    schedule, lr = train.schedule, train.scaled_lr(workers)
    # Later rates have the sign of the second one, because mu lr only falls.
    if isinstance(schedule, DiminishingScheduleConfig) and schedule.mu * lr >= 1:
        yield ConfigFault(
            f"mu times the learning rate is {schedule.mu * lr:g}, so that lr (1 - mu lr) is not positive; "
            f"set `train.schedule.mu` below {1 / lr:g}, or lower `train.optimizer.lr`",
            ("train", "schedule", "mu"),
        )
