"""Checks of the steps of workers: batches on demand, numbers of ranks, and settings of the learning rate."""

from collections.abc import Iterator
from typing import Any

from nnlo_lib.config.algorithm_base import StepOwner
from nnlo_lib.config.base import ConfigFault
from nnlo_lib.config.schedule import ConstantScheduleConfig, DiminishingScheduleConfig
from nnlo_lib.config.train import TrainConfig

DEALING, RANKS = ("train", "dealing"), ("parallel", "ranks")
REASONS_WITHOUT_SCHEDULE: dict[StepOwner, str] = {
    "server's": "applies updates on the server, which does not support learning-rate schedules",
    "algorithm's": "has no optimizer: its step follows from algorithm.beta",
}
REASON_WITHOUT_OPTIMIZER = (
    "with `algorithm.optimizer` and `sync_every: 1` updates parameters only by the server's optimizer"
)


def dynamic_dealing_faults(run: Any) -> Iterator[ConfigFault]:
    """Yield the faults of a run (config.Run) with dynamic dealing."""
    if not run.algorithm.is_asynchronous:
        yield _waiting_fault(run.algorithm)
    if run.data.partition.name != "iid":
        yield ConfigFault(
            "workers with separate samples (data.partition) cannot take batches of other workers; set `train.dealing: static`",
            DEALING,
        )
    if run.parallel.processes_per_worker > 1:
        yield ConfigFault(
            "the processes of a worker wait for each other; set `train.dealing: static`",
            DEALING,
        )
    if run.train.validate_every is not None:
        yield ConfigFault(
            "with dynamic dealing, the number of steps per worker is not known in advance; set `train.dealing: static`, "
            "or remove `train.validate_every`",
            ("train", "validate_every"),
        )


def _waiting_fault(algorithm: Any) -> ConfigFault:
    reason = f"the workers of {algorithm.name} wait for each other; set `train.dealing: static`"
    # The settings made an asynchronous algorithm synchronous.
    if algorithm.capabilities.asynchronous:
        reason = f"with `algorithm.synchronous: true`, {reason}, or remove `algorithm.synchronous`"
    return ConfigFault(reason, DEALING)


def rank_count_faults(run: Any) -> Iterator[ConfigFault]:
    """Yield the faults of a run (config.Run) in the numbers of its ranks, servers and processes per worker."""
    ranks, group, servers = run.parallel.ranks, run.parallel.processes_per_worker, run.algorithm.servers
    row = run.algorithm.capabilities
    if group > 1 and not row.supports_worker_groups:
        yield ConfigFault(
            f"{run.algorithm.name} does not support workers of several processes; set `parallel.processes_per_worker: 1`",
            ("parallel", "processes_per_worker"),
        )
    # Each server below the root needs a worker.
    workers = max(row.min_ranks - bool(servers), servers - 1)
    if ranks < servers + workers * group:
        yield _too_few_ranks(run, workers)
    if rest := (ranks - servers) % group:
        minus = {0: "", 1: " minus one server"}.get(servers, f" minus {servers} servers")
        yield ConfigFault(
            f"{ranks} ranks{minus} cannot be divided into workers of {group} ranks; set `parallel.ranks` to "
            f"{ranks - rest} or {ranks - rest + group}, or change `parallel.processes_per_worker`",
            RANKS,
        )


def _too_few_ranks(run: Any, workers: int) -> ConfigFault:
    """Return the fault of a run (config.Run) that has fewer than `workers` workers, the required number."""
    group, servers, name = run.parallel.processes_per_worker, run.algorithm.servers, run.algorithm.name
    least = servers + workers * group
    if servers > 1:
        plural = "s" if workers > 1 else ""
        return ConfigFault(
            f"{servers} masters require at least {workers} worker{plural}, one for each server below the root; "
            f"lower `algorithm.masters`, or set `parallel.ranks: {least}` or more",
            ("algorithm", "masters"),
        )
    of = f" of {group} ranks" if group > 1 else ""
    reason = f"one worker{of}" if workers == 1 else f"a node{of} exchanges vectors with another node"
    reason = f"one server and {reason}" if servers else reason
    return ConfigFault(
        f"{name} requires at least {least} ranks ({reason}); set `parallel.ranks: {least}` or more", RANKS
    )


def step_setting_faults(run: Any) -> Iterator[ConfigFault]:
    """Yield the faults of a run (config.Run) in settings of the learning rate and of an epoch's steps."""
    if run.data.stream and run.train.steps_per_epoch is not None:
        yield ConfigFault(
            "with data.stream, an epoch follows the samples of a worker from first to last; remove `train.steps_per_epoch`, "
            "and set `train.validate_every` for more frequent validation",
            ("train", "steps_per_epoch"),
        )
    yield from _ignored_rate_faults(run.train, run.algorithm)
    yield from _diminishing_faults(run.worker_train, run.workers)


def _ignored_rate_faults(train: TrainConfig, algorithm: Any) -> Iterator[ConfigFault]:
    """Yield faults for settings of a learning rate that the algorithm does not use."""
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


def _diminishing_faults(train: TrainConfig, workers: int) -> Iterator[ConfigFault]:
    """Yield the fault of a diminishing schedule of which the second learning rate is 0 or negative."""
    schedule, lr = train.schedule, train.scaled_lr(workers)
    # Later rates have the sign of the second one, because mu lr only falls.
    if isinstance(schedule, DiminishingScheduleConfig) and schedule.mu * lr >= 1:
        yield ConfigFault(
            f"mu times the learning rate is {schedule.mu * lr:g}, so that lr (1 - mu lr) is not positive; "
            f"set `train.schedule.mu` below {1 / lr:g}, or lower `train.optimizer.lr`",
            ("train", "schedule", "mu"),
        )
