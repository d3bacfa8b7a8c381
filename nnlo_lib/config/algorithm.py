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


class Downpour(Strict):
    """One server holds the parameters, workers send it gradients (Dean et al. 2012)."""

    name: Literal["downpour"] = "downpour"
    synchronous: bool = Field(False, description="The server waits for all workers and averages.")
    sync_every: int = Field(1, ge=1, description="Batches a worker computes between two exchanges.")
    optimizer: Optimizer | None = Field(None, description="The server's update rule; null: that of `train`.")


Algorithm = Annotated[AllReduce | Downpour, Field(discriminator="name")]
