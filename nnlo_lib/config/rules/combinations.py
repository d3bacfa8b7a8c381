"""Checks that the settings of a run fit the capabilities of its algorithm, and settings that the algorithm ignores."""

from collections.abc import Iterator
from typing import Any

from nnlo_lib.config.algorithm import ALGORITHMS
from nnlo_lib.config.algorithm_base import Capabilities
from nnlo_lib.config.base import ConfigFault, default
from nnlo_lib.config.compression import NoCompressionConfig
from nnlo_lib.config.reader import LidarReaderConfig
from nnlo_lib.config.rules.loss_rules import (
    gan_faults,
    loss_setting_faults,
    observed_array_faults,
    watched_metric_faults,
)
from nnlo_lib.config.rules.precision_rules import precision_faults
from nnlo_lib.config.rules.step_rules import (
    REASON_WITHOUT_OPTIMIZER,
    REASONS_WITHOUT_SCHEDULE,
    dynamic_dealing_faults,
    rank_count_faults,
    step_setting_faults,
)
from nnlo_lib.config.topology import CompleteGraphConfig, GraphSequenceConfig

DEFAULT_WEIGHTS = default(CompleteGraphConfig, "weights")


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
    if run.parallel.processes_per_worker > 1:
        return "a worker consists of several ranks (parallel.processes_per_worker)"
    if run.algorithm.servers > 1:
        return "it has several servers (algorithm.masters)"
    return None


def _faults(run: Any, name: str, row: Capabilities) -> Iterator[ConfigFault]:
    yield from rank_count_faults(run)
    yield from step_setting_faults(run)
    if run.train.dealing == "dynamic":
        yield from dynamic_dealing_faults(run)
    yield from _compression_faults(run, name, row)
    yield from _robot_faults(run)
    yield from run.algorithm.faults(run)
    yield from precision_faults(run)
    yield from gan_faults(run)
    yield from loss_setting_faults(run)
    yield from watched_metric_faults(run)
    yield from observed_array_faults(run)


def _robot_faults(run: Any) -> Iterator[ConfigFault]:
    """Yield the faults of a run (config.Run) with robots, or whose graph follows from robots that it does not have."""
    graphs = run.topology.of if isinstance(run.topology, GraphSequenceConfig) else (run.topology,)
    data = run.data
    if not data.has_robots:
        if any(getattr(graph, "positions", None) == "trajectory" for graph in graphs):
            yield ConfigFault(
                f"{data.dataset} has no robots that move; set `data.dataset: lidar`, or `topology.positions: random`",
                ("topology", "positions"),
            )
        return
    reader, at = data.reader or LidarReaderConfig(), ("data", "reader")
    if data.dataset == "lidar" and (reader.image or reader.waypoints):
        yield ConfigFault(
            "the data set lidar reads no files; set `data.dataset` to a name of your own and `data.source` to the folder of the files",
            (*at, "image" if reader.image else "waypoints"),
        )
    if data.dataset != "lidar" and not (reader.image or reader.waypoints):
        yield ConfigFault(
            "set `image` or `waypoints`, or for a building that is drawn from a seed `data.dataset: lidar` without `data.source`",
            at,
        )
    unread = {
        "with an image": ("width", "height", "room") if reader.image else (),
        "without an image": () if reader.image else ("threshold", "dark_walls", "border"),
        "with waypoints": ("robots", "stops", "clearance") if reader.waypoints else (),
    }
    for case, keys in unread.items():
        for key in keys:
            if getattr(reader, key) != default(LidarReaderConfig, key):
                yield ConfigFault(f"has no effect {case}; remove it", (*at, key))
    robots = len(reader.waypoints) or reader.robots
    if data.partition.name == "contiguous" and robots != run.workers:
        yield ConfigFault(
            f"{robots} robots, but {run.workers} workers, which would get scans of each other's robots; set `data.reader.robots` "
            "(or the files of `waypoints`) to the number of workers, or `data.partition: {name: iid}`",
            (*at, "waypoints" if reader.waypoints else "robots"),
        )
    if data.partition.name == "contiguous" and isinstance(data.validation, float) and data.validation:
        yield ConfigFault(
            "samples that are held out move the borders between the samples of the robots; set `data.validation: validation`, "
            "scans at random places of the building",
            ("data", "validation"),
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
    elif run.algorithm.worker_optimizer:
        yield ConfigFault(
            f"{name} with `algorithm.lr` updates the workers by SGD with this rate; remove `train.optimizer` or `algorithm.lr`",
            ("train", "optimizer"),
        )
    elif not run.algorithm.uses_train_optimizer:
        yield ConfigFault(
            f"{name} {REASON_WITHOUT_OPTIMIZER}; remove `train.optimizer` or `algorithm.optimizer`",
            ("train", "optimizer"),
        )
    has_one_process = run.parallel.transport == "simulated" or run.parallel.ranks == 1
    if has_one_process and run.parallel.bind != default(type(run.parallel), "bind"):
        yield ConfigFault(
            "no command starts the only process of this run; remove `parallel.bind`", ("parallel", "bind")
        )
    if row.graph_properties and not row.uses_mixing_weights:
        yield from _weight_faults(run.topology, name)


def _weight_faults(topology: Any, name: str) -> Iterator[ConfigFault]:
    """Yield the mixing weights of a graph, or of the graphs of a sequence, that an algorithm does not use."""
    graphs = topology.of if isinstance(topology, GraphSequenceConfig) else (topology,)
    if any(getattr(graph, "weights", DEFAULT_WEIGHTS) != DEFAULT_WEIGHTS for graph in graphs):
        key = "of" if isinstance(topology, GraphSequenceConfig) else "weights"
        yield ConfigFault(
            f"{name} uses the links of the graph, but no mixing weights; remove `weights`", ("topology", key)
        )
