"""Algorithms in which one node tells another, and none waits for all."""

from typing import Literal

from pydantic import Field

from nnlo_lib.config.strict import Strict


class GoSGD(Strict):
    """Now and then a node pushes its parameters, with half of its weight, to a random other (Blot et al. 2016)."""

    name: Literal["gosgd"] = "gosgd"
    probability: float = Field(0.01, gt=0, le=1, description="Chance of a push after a step.")
    synchronous: bool = Field(
        False,
        description="Wait for the pushes of this very step: slower with stragglers, the same bits always.",
    )


class SGP(Strict):
    """Stochastic gradient push: weighted averages over directed graphs (Assran et al. 2019)."""

    name: Literal["sgp"] = "sgp"


class ADPSGD(Strict):
    """Asynchronous pairs: every active node averages with a random passive neighbour (Lian et al. 2018)."""

    name: Literal["adpsgd"] = "adpsgd"
