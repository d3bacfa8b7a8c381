"""Settings of the graph and the optimizer that an algorithm ignores."""

from collections.abc import Iterator
from typing import Any

from nnlo_lib.config.base import ConfigFault, default
from nnlo_lib.config.rules.step_settings import REASON_WITHOUT_OPTIMIZER, REASONS_WITHOUT_SCHEDULE
from nnlo_lib.config.topology import CompleteGraphConfig, GraphSequenceConfig

DEFAULT_WEIGHTS = default(CompleteGraphConfig, "weights")


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
