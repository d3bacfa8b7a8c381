"""Checks that the settings of a run fit the capabilities of its algorithm."""

from collections.abc import Iterator
from typing import Any

from nnlo_lib.config.algorithm import ALGORITHMS
from nnlo_lib.config.algorithm_base import Capabilities, StepOwner
from nnlo_lib.config.base import ConfigFault
from nnlo_lib.config.compression import NoCompressionConfig
from nnlo_lib.config.rules.gan import gan_faults
from nnlo_lib.config.rules.precision import precision_faults
from nnlo_lib.config.rules.watched_metrics import watched_metric_faults
from nnlo_lib.config.schedule import ConstantScheduleConfig
from nnlo_lib.config.topology import CompleteGraphConfig

REASONS_WITHOUT_SCHEDULE: dict[StepOwner, str] = {
    "server's": "applies updates on the server, which does not support learning-rate schedules",
    "algorithm's": "has no optimizer: its step follows from algorithm.beta",
}


def first_fault(run: Any) -> ConfigFault | None:
    """Return the first fault of a run (config.Run) that can be found without building its graph, or None."""
    return next(_faults(run, run.algorithm.name, run.algorithm.capabilities), None)


def reason_not_elastic(run: Any) -> str | None:
    """Return why a run (config.Run) cannot resume with another number of ranks; None if it can."""
    row, name = run.algorithm.capabilities, run.algorithm.name
    if not row.elastic:
        return f"each rank of {name} has a state that other ranks cannot take over"
    # The partition is made for a number of workers.
    if run.data.partition.name != "iid":
        return "its workers have separate samples (data.partition)"
    if run.train.steps_per_epoch is not None:
        return "with train.steps_per_epoch, the samples of an epoch depend on the number of workers"
    if not isinstance(run.compression, NoCompressionConfig):
        return "each rank keeps the error feedback of its compressed vectors"
    if run.parallel.processes_per_worker > 1 or run.algorithm.servers > 1:
        return "it has workers of several ranks, or several servers"
    return None


def _faults(run: Any, name: str, row: Capabilities) -> Iterator[ConfigFault]:
    ranks, group = run.parallel.ranks, run.parallel.processes_per_worker
    servers = run.algorithm.servers
    if ranks < row.min_ranks:
        yield ConfigFault(
            f"{name} requires at least {row.min_ranks} ranks ({_reason_for_min_ranks(row)}); "
            f"set `parallel.ranks: {row.min_ranks}` or more",
            ("parallel", "ranks"),
        )
    if group > 1 and not row.supports_worker_groups:
        yield ConfigFault(
            f"{name} does not support workers of several processes; set `parallel.processes_per_worker: 1`",
            ("parallel", "processes_per_worker"),
        )
    if (ranks - servers) % group:
        minus = {0: "", 1: " minus one server"}.get(servers, f" minus {servers} servers")
        yield ConfigFault(
            f"{ranks} ranks{minus} cannot be divided into workers of {group} ranks; "
            "change `parallel.ranks` or `parallel.processes_per_worker`",
            ("parallel", "ranks"),
        )
    if servers > 1 and (ranks - servers) // group < servers - 1:
        yield ConfigFault(
            f"{servers} masters require at least {servers - 1} workers, one for each server below the root; "
            "lower `algorithm.masters` or raise `parallel.ranks`",
            ("algorithm", "masters"),
        )
    yield from _step_faults(run.train, name, row)
    if run.train.dealing == "dynamic":
        yield from _dynamic_batch_faults(run, name)
    yield from _compression_faults(run, name, row)
    yield from run.algorithm.faults(run)
    yield from (
        ConfigFault(*each) for each in (*precision_faults(run), *gan_faults(run), *watched_metric_faults(run))
    )


def _step_faults(train: Any, name: str, row: Capabilities) -> Iterator[ConfigFault]:
    """Yield faults for settings of a learning rate that the algorithm does not use.

    Args:
        train: section `train` of the run (config.TrainConfig).
        name: name of the algorithm.
        row: capabilities of the algorithm.
    """
    if row.supports_schedule:
        return
    why = f"{name} {REASONS_WITHOUT_SCHEDULE[row.step]}"
    if not isinstance(train.schedule, ConstantScheduleConfig):
        yield ConfigFault(f"{why}; set `train.schedule.name: constant`", ("train", "schedule"))
    if train.warm_up:
        yield ConfigFault(f"{why}; remove `train.warm_up`", ("train", "warm_up"))
    if row.step == "algorithm's" and train.scale_lr != "none":
        yield ConfigFault(f"{why}; set `train.scale_lr: none`", ("train", "scale_lr"))


def unused_settings(run: Any) -> Iterator[ConfigFault]:
    """Yield the settings of a run (config.Run) that its algorithm ignores.

    They are mistakes only if no run that shares them uses them.
    """
    row, name = run.algorithm.capabilities, run.algorithm.name
    if not row.graph_properties and run.topology != CompleteGraphConfig():
        yield ConfigFault(
            f"{name} does not use a graph; remove `topology`, or set `topology.name: complete`",
            ("topology",),
        )
    if row.step == "algorithm's":
        yield ConfigFault(
            f"{name} {REASONS_WITHOUT_SCHEDULE[row.step]}; remove `train.optimizer`", ("train", "optimizer")
        )


def _dynamic_batch_faults(run: Any, name: str) -> Iterator[ConfigFault]:
    if not run.algorithm.is_asynchronous:
        yield ConfigFault(
            f"the workers of {name} wait for each other; set `train.dealing: static`", ("train", "dealing")
        )
    if run.data.partition.name != "iid":
        yield ConfigFault(
            "workers with separate samples (data.partition) cannot take batches of other workers; set `train.dealing: static`",
            ("train", "dealing"),
        )
    if run.parallel.processes_per_worker > 1:
        yield ConfigFault(
            "the processes of a worker wait for each other; set `train.dealing: static`", ("train", "dealing")
        )
    if run.train.validate_every is not None:
        yield ConfigFault(
            "with dynamic dealing, the number of steps per worker is not known in advance; set `train.dealing: static`, "
            "or remove `train.validate_every`",
            ("train", "validate_every"),
        )


def _reason_for_min_ranks(row: Capabilities) -> str:
    return (
        "one server and one worker"
        if row.supports_server_tree
        else "a node exchanges vectors with another node"
    )


def _compression_faults(run: Any, name: str, row: Capabilities) -> Iterator[ConfigFault]:
    is_cast, is_none = run.compression.is_cast, isinstance(run.compression, NoCompressionConfig)
    if is_none or row.compression == "any" or (is_cast and row.compression == "cast"):
        return
    others = ", ".join(other for other, needs in ALGORITHMS.items() if needs.compression == "any")
    allowed = "fp16, bf16 or none" if row.compression == "cast" else "none"
    yield ConfigFault(
        f"{name} does not support {run.compression.name}; set `compression.name` to {allowed}, "
        f"or use another algorithm: {others}",
        ("compression", "name"),
    )
