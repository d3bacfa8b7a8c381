"""Algorithms in which all replicas agree together, and the baseline in which none does."""

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field

from nnlo_lib.config.algorithm_base import BaseAlgorithmConfig, Capabilities
from nnlo_lib.config.base import ConfigFault
from nnlo_lib.config.compression import NoCompressionConfig


class AllReduceConfig(BaseAlgorithmConfig):
    """Synchronous data parallel: every step averages the gradients of all ranks (Theano-MPI's BSP)."""

    name: Literal["allreduce"] = "allreduce"
    implementation = "nnlo_lib.algorithms.collective.allreduce:AllReduce"
    capabilities = Capabilities(
        compression="any", supports_worker_groups=False, one_model=True, elastic=True, shares_gradient=True
    )
    reduction: Literal["reproducible", "fastest"] = Field(
        "reproducible", description="Add in rank order (same bits on every transport), or as MPI likes best."
    )
    bucket_mb: float = Field(
        0.0,
        ge=0,
        description="Megabytes of gradient that leave as one message while the backward pass goes on; 0 sends all in one "
        "message after it, which is faster where ranks share a machine. Reproducible sums are the same to the bit.",
    )

    @property
    def sums_in_rank_order(self) -> bool:
        """Whether sums have the same bits every time."""
        return self.reduction == "reproducible"

    def faults(self, run: Any) -> Iterator[ConfigFault]:
        """Yield why a run (config.Run) cannot be: compressed gradients are never added as MPI likes."""
        if self.reduction == "fastest" and not isinstance(run.compression, NoCompressionConfig):
            yield ConfigFault(
                "compressed gradients are always added in rank order; leave it out",
                ("algorithm", "reduction"),
            )


class AverageConfig(BaseAlgorithmConfig):
    """Local SGD: every replica learns alone and every few steps all average their parameters (Stich 2019)."""

    name: Literal["average"] = "average"
    implementation = "nnlo_lib.algorithms.collective.average:Average"
    capabilities = Capabilities(compression="any", one_model=True, elastic=True)
    sync_every: int = Field(10, ge=1, description="Local steps between two averages.")


class DiLoCoConfig(BaseAlgorithmConfig):
    """Local steps, whose mean change is the gradient of an outer Nesterov momentum (Douillard et al. 2023)."""

    name: Literal["diloco"] = "diloco"
    implementation = "nnlo_lib.algorithms.collective.diloco:DiLoCo"
    capabilities = Capabilities(compression="any", one_model=True, elastic=True)
    sync_every: int = Field(50, ge=1, description="Local steps between two outer steps.")
    outer_lr: float = Field(0.7, gt=0, description="Learning rate of the outer step.")
    outer_momentum: float = Field(0.9, ge=0, lt=1, description="Nesterov momentum of the outer step.")


class IndividualConfig(BaseAlgorithmConfig):
    """Every replica learns alone from its own samples: the baseline that agreement must beat."""

    name: Literal["individual"] = "individual"
    implementation = "nnlo_lib.algorithms.collective.individual:Individual"
    capabilities = Capabilities()


CollectiveConfig = AllReduceConfig | AverageConfig | DiLoCoConfig | IndividualConfig
