"""Algorithms in which workers agree through a server."""

from typing import Literal

from pydantic import Field

from nnlo_lib.config.optimizer import Optimizer
from nnlo_lib.config.strict import Strict


class Server(Strict):
    """What all of them say."""

    sync_every: int = Field(1, ge=1, description="Batches a worker computes between two exchanges.")
    masters: int = Field(
        1, ge=1, description="Servers: 1, or a root and masters - 1 others that each gather for some workers."
    )


class Downpour(Server):
    """One server holds the parameters, workers send it gradients (Dean et al. 2012)."""

    name: Literal["downpour"] = "downpour"
    synchronous: bool = Field(False, description="The server waits for all workers and averages.")
    optimizer: Optimizer | None = Field(None, description="The server's update rule; null: that of `train`.")


class EASGD(Server):
    """Workers explore, tied by springs to a centre that the server holds (Zhang, Choromanska and LeCun 2015)."""

    name: Literal["easgd"] = "easgd"
    sync_every: int = Field(
        10, ge=1, description="Batches between two exchanges (tau, the communication period)."
    )
    synchronous: bool = Field(False, description="The server waits for all workers.")
    elastic_force: float = Field(
        0.9, gt=0, description="beta of the paper; alpha, the part of the distance moved, is beta / workers."
    )
    alpha: float | None = Field(None, gt=0, lt=1, description="Sets alpha itself, whatever elastic_force is.")


class GEM(Server):
    """Workers scale their updates so that all together move like one with momentum (Hermans and Louppe 2018)."""

    name: Literal["gem"] = "gem"
    momentum: float = Field(0.9, ge=0, lt=1, description="Momentum of the proxy that the updates match.")
    kappa: float = Field(1.0, gt=0, description="How much faster than the proxy the workers may move.")
    largest_scale: float = Field(5.0, gt=0, description="Bound on the scale of an update.")
