"""Algorithms in which all replicas agree together, and the baseline in which none does."""

from typing import Literal

from pydantic import Field

from nnlo_lib.config.strict import Strict


class AllReduce(Strict):
    """Synchronous data parallel: every step averages the gradients of all ranks (Theano-MPI's BSP)."""

    name: Literal["allreduce"] = "allreduce"
    reduction: Literal["reproducible", "fastest"] = Field(
        "reproducible", description="Add in rank order (same bits on every transport), or as MPI likes best."
    )
    bucket_mb: float = Field(
        0.0,
        ge=0,
        description="Megabytes of gradient that leave as one message while the backward pass goes on; 0 sends all in one "
        "message after it, which is faster where ranks share a machine. Reproducible sums are the same to the bit.",
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


class Individual(Strict):
    """Every replica learns alone from its own samples: the baseline that agreement must beat."""

    name: Literal["individual"] = "individual"
