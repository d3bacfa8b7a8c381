"""Whether an algorithm goes with the rest of an experiment, by its capabilities."""

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
    "server's": "steps on its server, which knows no schedule",
    "algorithm's": "has no optimizer, its step follows from algorithm.beta",
}


def first_fault(run: Any) -> ConfigFault | None:
    """Return the first reason why a run (config.Run) cannot be, as far as it shows without drawing its graph."""
    return next(_faults(run, run.algorithm.name, run.algorithm.capabilities), None)


def reason_not_elastic(run: Any) -> str | None:
    """Return why a run (config.Run) cannot go on with another number of ranks; None if it can."""
    row, name = run.algorithm.capabilities, run.algorithm.name
    if not row.elastic:
        return f"each rank of {name} holds a state that no other can take over"
    if run.data.partition.name != "iid":
        return "its workers have samples of their own (data.partition)"
    if run.train.steps_per_epoch is not None:
        return "train.steps_per_epoch makes an epoch's samples depend on the number of workers"
    if not isinstance(run.compression, NoCompressionConfig):
        return "each rank keeps the errors of its own compressed vectors"
    if run.parallel.processes_per_worker > 1 or run.algorithm.servers > 1:
        return "its workers or servers are groups of ranks"
    return None


def _faults(run: Any, name: str, row: Capabilities) -> Iterator[ConfigFault]:
    ranks, group = run.parallel.ranks, run.parallel.processes_per_worker
    servers = run.algorithm.servers
    if ranks < row.min_ranks:
        yield ConfigFault(
            f"{name} needs at least {row.min_ranks} ranks: {_reason_for_min_ranks(row)}",
            ("parallel", "ranks"),
        )
    if group > 1 and not row.supports_worker_groups:
        yield ConfigFault(
            f"{name} has no workers of several processes; use more ranks",
            ("parallel", "processes_per_worker"),
        )
    if (ranks - servers) % group:
        less = {0: "", 1: " less one server"}.get(servers, f" less {servers} servers")
        yield ConfigFault(
            f"{ranks} ranks{less} do not divide into workers of {group}",
            ("parallel", "ranks"),
        )
    if servers > 1 and (ranks - servers) // group < servers - 1:
        yield ConfigFault(
            f"{servers} masters need {servers - 1} workers at least, one for each below the root",
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
    """Yield what would change a learning rate that is not used."""
    if row.supports_schedule:
        return
    why = f"{name} {REASONS_WITHOUT_SCHEDULE[row.step]}"
    if not isinstance(train.schedule, ConstantScheduleConfig):
        yield ConfigFault(f"{why}; use constant", ("train", "schedule"))
    if train.warm_up:
        yield ConfigFault(f"{why}; leave it out", ("train", "warm_up"))
    if row.step == "algorithm's" and train.scale_lr != "none":
        yield ConfigFault(f"{why}; use none", ("train", "scale_lr"))


def unused_settings(run: Any) -> Iterator[ConfigFault]:
    """Yield what a run (config.Run) has and its algorithm does not use, where several runs may share it."""
    row, name = run.algorithm.capabilities, run.algorithm.name
    if not row.graph_properties and run.topology != CompleteGraphConfig():
        yield ConfigFault(
            f"{name} has no graph, its ranks talk to whom it says; leave it out, or write complete",
            ("topology",),
        )
    if row.step == "algorithm's":
        yield ConfigFault(
            f"{name} {REASONS_WITHOUT_SCHEDULE[row.step]}; leave it out", ("train", "optimizer")
        )


def _dynamic_batch_faults(run: Any, name: str) -> Iterator[ConfigFault]:
    if not run.algorithm.is_asynchronous:
        yield ConfigFault(f"the workers of {name} wait for each other; use static", ("train", "dealing"))
    if run.data.partition.name != "iid":
        yield ConfigFault(
            "workers that have samples of their own cannot take others'; use static", ("train", "dealing")
        )
    if run.parallel.processes_per_worker > 1:
        yield ConfigFault("the processes of a worker wait for each other; use static", ("train", "dealing"))
    if run.train.validate_every is not None:
        yield ConfigFault(
            "no worker knows how many steps the others do; use static", ("train", "validate_every")
        )


def _reason_for_min_ranks(row: Capabilities) -> str:
    return "one server and one worker" if row.supports_server_tree else "a node needs another to agree with"


def _compression_faults(run: Any, name: str, row: Capabilities) -> Iterator[ConfigFault]:
    casts, nothing = run.compression.is_cast, isinstance(run.compression, NoCompressionConfig)
    if nothing or row.compression == "any" or (casts and row.compression == "cast"):
        return
    able = ", ".join(other for other, needs in ALGORITHMS.items() if needs.compression == "any")
    also = "; of the casts fp16 and bf16 it allows both" if row.compression == "cast" else ""
    yield ConfigFault(
        f"{name} cannot go on from compressed vectors; {able} can{also}",
        ("compression", "name"),
    )
