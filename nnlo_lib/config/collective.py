"""Settings of the collective algorithms, and of the baseline without communication."""

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field

from nnlo_lib.config.algorithm_base import BaseAlgorithmConfig, Capabilities
from nnlo_lib.config.base import ConfigFault
from nnlo_lib.config.compression import NoCompressionConfig


class AllReduceConfig(BaseAlgorithmConfig):
    """Synchronous data parallelism: every step averages the gradients of all ranks (Theano-MPI's BSP)."""

    name: Literal["allreduce"] = "allreduce"
    implementation = "nnlo_lib.algorithms.collective.allreduce:AllReduce"
    capabilities = Capabilities(
        compression="any",
        supports_worker_groups=False,
        one_model=True,
        elastic=True,
        shares_gradient=True,
        keeps_critic_steps="without compression",
    )
    reduction: Literal["reproducible", "fastest"] = Field(
        "reproducible",
        description="Order in which gradients are added. reproducible: in rank order, bit-identical on every "
        "transport; fastest: in the order that MPI chooses.",
    )
    bucket_mb: float = Field(
        0.0,
        ge=0,
        description="Megabytes of gradient per message; messages are sent during the backward pass. 0: one message "
        "after the backward pass, which is faster if all ranks share a machine. With `reduction: reproducible`, "
        "results are bit-identical for every value.",
    )

    @property
    def sums_in_rank_order(self) -> bool:
        """True if `reduction` is reproducible."""
        return self.reduction == "reproducible"

    def faults(self, run: Any) -> Iterator[ConfigFault]:
        """Yield a fault if a run (config.Run) combines `reduction: fastest` with compression."""
        if self.reduction == "fastest" and not isinstance(run.compression, NoCompressionConfig):
            yield ConfigFault(
                "compressed gradients are always added in rank order; remove `algorithm.reduction`",
                ("algorithm", "reduction"),
            )


class AverageConfig(BaseAlgorithmConfig):
    """Local SGD: replicas train independently and average their parameters every few steps (Stich 2019)."""

    name: Literal["average"] = "average"
    implementation = "nnlo_lib.algorithms.collective.average:Average"
    capabilities = Capabilities(
        compression="any", one_model=True, elastic=True, keeps_weight_clip="without compression"
    )
    sync_every: int = Field(10, ge=1, description="Local steps between two averagings.")


class DiLoCoConfig(BaseAlgorithmConfig):
    """Local steps, then an outer Nesterov step with the mean change as its gradient (Douillard et al. 2023)."""

    name: Literal["diloco"] = "diloco"
    implementation = "nnlo_lib.algorithms.collective.diloco:DiLoCo"
    capabilities = Capabilities(compression="any", one_model=True, elastic=True, keeps_weight_clip="no")
    sync_every: int = Field(50, ge=1, description="Local steps between two outer steps.")
    outer_lr: float = Field(0.7, gt=0, description="Learning rate of the outer step.")
    outer_momentum: float = Field(0.9, ge=0, lt=1, description="Nesterov momentum of the outer step.")


class IndividualConfig(BaseAlgorithmConfig):
    """Baseline: every replica trains on its own samples, without communication."""

    name: Literal["individual"] = "individual"
    implementation = "nnlo_lib.algorithms.collective.individual:Individual"
    capabilities = Capabilities()

    def faults(self, run: Any) -> Iterator[ConfigFault]:
        """Yield a fault if a run (config.Run) scales the learning rate."""
        if run.train.scale_lr != "none":
            yield ConfigFault(
                "individual trains every worker alone, so that the number of workers does not matter; "
                "set `train.scale_lr: none`",
                ("train", "scale_lr"),
            )


CollectiveConfig = AllReduceConfig | AverageConfig | DiLoCoConfig | IndividualConfig
