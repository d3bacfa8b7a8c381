"""How the replicas agree."""

from typing import Annotated, Literal

from pydantic import Field

from nnlo_lib.config.optimizer import Optimizer
from nnlo_lib.config.strict import Strict


class AllReduce(Strict):
    """Synchronous data parallel: every step averages the gradients of all ranks."""

    name: Literal["allreduce"] = "allreduce"
    reduction: Literal["reproducible", "fastest"] = Field(
        "reproducible", description="Add in rank order (same bits on every transport), or as MPI likes best."
    )


class Average(Strict):
    """Local SGD: every replica learns alone and every few steps all average their parameters (Stich 2019)."""

    name: Literal["average"] = "average"
    sync_every: int = Field(10, ge=1, description="Local steps between two averages.")


class DiLoCo(Strict):
    """Local steps, whose mean change is the gradient of an outer Nesterov momentum (Douillard et al. 2023)."""

    name: Literal["diloco"] = "diloco"
    sync_every: int = Field(50, ge=1, description="Local steps between two outer steps.")
    outer_lr: float = Field(0.7, gt=0, description="Learning rate of the outer step.")
    outer_momentum: float = Field(0.9, ge=0, lt=1, description="Nesterov momentum of the outer step.")


class Downpour(Strict):
    """One server holds the parameters, workers send it gradients (Dean et al. 2012)."""

    name: Literal["downpour"] = "downpour"
    synchronous: bool = Field(False, description="The server waits for all workers and averages.")
    sync_every: int = Field(1, ge=1, description="Batches a worker computes between two exchanges.")
    optimizer: Optimizer | None = Field(None, description="The server's update rule; null: that of `train`.")


Algorithm = Annotated[AllReduce | Average | DiLoCo | Downpour, Field(discriminator="name")]
