"""Settings of the gossip algorithms: a node sends its parameters to one other node at a time."""

from typing import Literal

from pydantic import Field

from nnlo_lib.config.algorithm_base import BaseAlgorithmConfig, Capabilities


class GoSGDConfig(BaseAlgorithmConfig):
    """At random steps, a node pushes its parameters and half of its weight to a random node (Blot et al. 2016)."""

    name: Literal["gosgd"] = "gosgd"
    implementation = "nnlo_lib.algorithms.gossip.gosgd:GoSGD"
    capabilities = Capabilities(
        compression="cast", asynchronous=True, min_ranks=2, supports_worker_groups=False
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
    )


class ADPSGDConfig(BaseAlgorithmConfig):
    """Asynchronous pairs: every active node averages with a random passive neighbor (Lian et al. 2018)."""

    name: Literal["adpsgd"] = "adpsgd"
    implementation = "nnlo_lib.algorithms.gossip.adpsgd:ADPSGD"
    capabilities = Capabilities(
        graph_properties=("connected", "symmetric", "static", "bipartite"),
        compression="cast",
        asynchronous=True,
        supports_worker_groups=False,
        min_ranks=2,
    )


GossipConfig = GoSGDConfig | SGPConfig | ADPSGDConfig
