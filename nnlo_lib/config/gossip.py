"""Settings of the gossip algorithms: a node sends its parameters to one other node at a time."""

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field

from nnlo_lib.config.algorithm_base import BaseAlgorithmConfig, Capabilities
from nnlo_lib.config.base import ConfigFault
from nnlo_lib.config.topology import DirectedEdgesGraphConfig, GraphSequenceConfig


class GoSGDConfig(BaseAlgorithmConfig):
    """At random steps, a node pushes its parameters and half of its weight to a random node (Blot et al. 2016)."""

    name: Literal["gosgd"] = "gosgd"
    implementation = "nnlo_lib.algorithms.gossip.gosgd:GoSGD"
    capabilities = Capabilities(
        compression="cast",
        asynchronous=True,
        min_ranks=2,
        supports_worker_groups=False,
        keeps_weight_clip="without compression",
    )
    probability: float = Field(0.01, gt=0, le=1, description="Probability of a push after a step.")
    synchronous: bool = Field(
        False,
        description="Wait for the pushes of the same step: slower with stragglers, but bit-identical in every run.",
    )

    @property
    def is_asynchronous(self) -> bool:
        """True if no worker waits for another."""
        return not self.synchronous


class SGPConfig(BaseAlgorithmConfig):
    """Stochastic gradient push: weighted averages over directed graphs (Assran et al. 2019)."""

    name: Literal["sgp"] = "sgp"
    implementation = "nnlo_lib.algorithms.gossip.sgp:SGP"
    capabilities = Capabilities(
        graph_properties=("connected",),
        compression="cast",
        compresses_changes=False,
        supports_worker_groups=False,
        keeps_weight_clip="without compression",
    )

    def faults(self, run: Any) -> Iterator[ConfigFault]:
        """Yield a fault if a run (config.Run) bounds weights on a graph on which the nodes' weights differ."""
        graphs = run.topology.of if isinstance(run.topology, GraphSequenceConfig) else (run.topology,)
        # The optimizer bounds x = w z, and a node trains z; on the other graphs, every w is 1.
        if getattr(run.problem, "weight_clip", None) and any(
            isinstance(graph, DirectedEdgesGraphConfig) for graph in graphs
        ):
            yield ConfigFault(
                "sgp bounds parameters that it then divides by the weight of the node; remove it and set "
                "`problem.gradient_penalty: 10`, or set another `topology.name` than directed_edges",
                ("problem", "weight_clip"),
            )


class ADPSGDConfig(BaseAlgorithmConfig):
    """Asynchronous pairs: every active node averages with a random passive neighbor (Lian et al. 2018)."""

    name: Literal["adpsgd"] = "adpsgd"
    implementation = "nnlo_lib.algorithms.gossip.adpsgd:ADPSGD"
    capabilities = Capabilities(
        graph_properties=("connected", "symmetric", "static", "bipartite"),
        compression="cast",
        asynchronous=True,
        min_ranks=2,
        uses_mixing_weights=False,
        keeps_weight_clip="no",
    )


GossipConfig = GoSGDConfig | SGPConfig | ADPSGDConfig
