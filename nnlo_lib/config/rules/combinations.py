"""Checks that the settings of a run fit the capabilities of its algorithm, and settings that the algorithm ignores.

Each fault is `key: sentence`. Runs have the type Any, because config.Run imports these checks.
"""

from collections.abc import Iterator
from typing import Any

from nnlo_lib.config.algorithm import ALGORITHMS
from nnlo_lib.config.base import default
from nnlo_lib.config.compression import NoCompressionConfig
from nnlo_lib.config.reader import LidarReaderConfig
from nnlo_lib.config.rules import loss_rules, step_rules
from nnlo_lib.config.topology import CompleteGraphConfig, GraphSequenceConfig

DEFAULT_WEIGHTS = default(CompleteGraphConfig, "weights")


def run_faults(run: Any) -> Iterator[str]:
    """Yield the faults of a run that can be found without building its graph."""
    yield from step_rules.rank_count_faults(run)
    yield from step_rules.step_setting_faults(run)
    yield from step_rules.dealing_faults(run)
    yield from _compression_faults(run)
    yield from _robot_faults(run)
    yield from _elastic_faults(run)
    yield from run.algorithm.faults(run)
    yield from step_rules.precision_faults(run)
    yield from loss_rules.gan_faults(run)
    yield from loss_rules.loss_setting_faults(run)
    yield from loss_rules.watched_metric_faults(run)
    yield from loss_rules.observed_array_faults(run)
    ranks, profile = run.parallel.ranks, run.observe.profile
    if run.resources.nodes > ranks:
        yield f"resources.nodes: {run.resources.nodes} nodes exceed the {ranks} ranks; use at most {ranks}"
    if profile and profile.rank >= ranks:
        yield f"observe.profile: rank {profile.rank} does not exist; use a rank from 0 to {ranks - 1}"
    if profile and profile.tool == "cprofile" and run.parallel.transport == "simulated" and ranks > 1:
        yield (
            "observe.profile: cprofile cannot distinguish simulated ranks, which share one process; "
            "set `observe.profile.tool: torch`"
        )


def reason_not_elastic(run: Any) -> str | None:
    """Return why a run cannot resume with another number of ranks; None if it can."""
    reasons = {
        f"each rank of {run.algorithm.name} has a state that other ranks cannot take over": not run.algorithm.capabilities.elastic,
        # The partition is made for a number of workers.
        "its workers have separate samples (data.partition)": run.data.partition.name != "iid",
        "with train.steps_per_epoch, the samples of an epoch depend on the number of workers": run.train.steps_per_epoch is not None,
        "each rank keeps the error feedback of its compressed vectors": not isinstance(run.compression, NoCompressionConfig),
        "only some of its ranks take part in a round (algorithm.participation)": run.algorithm.some_ranks_rest,
        "a worker consists of several ranks (parallel.processes_per_worker)": run.parallel.processes_per_worker > 1,
        "it has several servers (algorithm.masters)": run.algorithm.servers > 1,
    }  # fmt: skip
    return next((reason for reason, holds in reasons.items() if holds), None)


def _elastic_faults(run: Any) -> Iterator[str]:
    """Yield the faults of a simulation whose ranks leave and return."""
    elastic, key = run.parallel.simulation.elastic, "parallel.simulation.elastic"
    if not elastic or run.parallel.transport != "simulated":
        return
    if reason := reason_not_elastic(run):
        able = ", ".join(name for name, row in ALGORITHMS.items() if row.elastic)
        yield f"{key}: {reason}; remove it, or take one of the algorithms {able}, without these settings"
    if (last := max(elastic)) > run.train.epochs:
        yield f"{key}: epoch {last} comes after the last one; remove it, or set `train.epochs: {last}` or more"
    for epoch, ranks in elastic.items():
        parallel = run.parallel.model_copy(update={"ranks": ranks})
        resized = run.model_copy(update={"parallel": parallel})
        for fault in (*step_rules.rank_count_faults(resized), *resized.algorithm.faults(resized)):
            yield f"{key}: the run is not possible from epoch {epoch} on: {fault}"


def _robot_faults(run: Any) -> Iterator[str]:
    """Yield the faults of a run with robots, or whose graph follows from robots that it does not have."""
    data, at = run.data, "data.reader"
    if not data.has_robots:
        if any(getattr(graph, "positions", None) == "trajectory" for graph in run.topology.graphs):
            yield (
                f"topology.positions: {data.dataset} has no robots that move; set `data.dataset: lidar`, or "
                "`topology.positions: random`"
            )
        return
    reader = data.reader or LidarReaderConfig()
    if data.dataset == "lidar" and (reader.image or reader.waypoints):
        yield (
            f"{at}.{'image' if reader.image else 'waypoints'}: the data set lidar reads no files; set `data.dataset` to a name of "
            "your own and `data.source` to the folder of the files"
        )
    if data.dataset != "lidar" and not (reader.image or reader.waypoints):
        yield (
            f"{at}: set `image` or `waypoints`, or for a building that is drawn from a seed `data.dataset: lidar` without "
            "`data.source`"
        )
    unread = {
        "with an image": ("width", "height", "room") if reader.image else (),
        "without an image": () if reader.image else ("threshold", "dark_walls", "border"),
        "with waypoints": ("robots", "stops", "clearance") if reader.waypoints else (),
    }
    for case, keys in unread.items():
        for key in keys:
            if getattr(reader, key) != default(LidarReaderConfig, key):
                yield f"{at}.{key}: has no effect {case}; remove it"
    robots = len(reader.waypoints) or reader.robots
    if data.partition.name == "contiguous" and robots != run.workers:
        yield (
            f"{at}.{'waypoints' if reader.waypoints else 'robots'}: {robots} robots, but {run.workers} workers, which would get "
            "scans of each other's robots; set `data.reader.robots` (or the files of `waypoints`) to the number of workers, or "
            "`data.partition: {name: iid}`"
        )
    if data.partition.name == "contiguous" and isinstance(data.validation, float) and data.validation:
        yield (
            "data.validation: samples that are held out move the borders between the samples of the robots; set "
            "`data.validation: validation`, scans at random places of the building"
        )


def _compression_faults(run: Any) -> Iterator[str]:
    name, allowed = run.algorithm.name, run.algorithm.capabilities.compression
    if run.compression.name == "none" or allowed == "any" or (run.compression.is_cast and allowed == "cast"):
        return
    others = ", ".join(other for other, needs in ALGORITHMS.items() if needs.compression == "any")
    yield (
        f"compression.name: {name} does not support {run.compression.name}; set `compression.name` to "
        f"{'fp16, bf16 or none' if allowed == 'cast' else 'none'}, or use another algorithm: {others}"
    )


def unused_settings(run: Any) -> Iterator[str]:
    """Yield the settings of a run that its algorithm ignores, which are mistakes only if no run that shares them uses them."""
    row, name, topology = run.algorithm.capabilities, run.algorithm.name, run.topology
    if not row.graph_properties and topology != CompleteGraphConfig():
        yield f"topology: {name} does not use a graph; remove `topology`, or set `topology.name: complete`"
    if row.step == "algorithm's":
        yield f"train.optimizer: {name} {step_rules.REASONS_WITHOUT_SCHEDULE[row.step]}; remove `train.optimizer`"
    elif run.algorithm.worker_optimizer:
        yield (
            f"train.optimizer: {name} with `algorithm.lr` updates the workers by SGD with this rate; remove `train.optimizer` "
            "or `algorithm.lr`"
        )
    elif not run.algorithm.uses_train_optimizer:
        yield (
            f"train.optimizer: {name} {step_rules.REASON_WITHOUT_OPTIMIZER}; remove `train.optimizer` or `algorithm.optimizer`"
        )
    has_one_process = run.parallel.transport == "simulated" or run.parallel.ranks == 1
    if has_one_process and run.parallel.bind != default(type(run.parallel), "bind"):
        yield "parallel.bind: no command starts the only process of this run; remove `parallel.bind`"
    is_weighted = any(
        getattr(graph, "weights", DEFAULT_WEIGHTS) != DEFAULT_WEIGHTS for graph in topology.graphs
    )
    if row.graph_properties and not row.uses_mixing_weights and is_weighted:
        key = "of" if isinstance(topology, GraphSequenceConfig) else "weights"
        yield f"topology.{key}: {name} uses the links of the graph, but no mixing weights; remove `weights`"
