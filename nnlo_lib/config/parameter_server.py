"""Algorithms in which workers agree through a server."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal

from pydantic import Field

from nnlo_lib.config.algorithm_base import BaseAlgorithmConfig, Capabilities
from nnlo_lib.config.base import ConfigFault
from nnlo_lib.config.optimizer import OptimizerConfig

SERVED = Capabilities(supports_server_tree=True, step="server's", asynchronous=True, min_ranks=2)


class ParameterServerConfig(BaseAlgorithmConfig):
    """What all of them say."""

    sync_every: int = Field(1, ge=1, description="Batches a worker computes between two exchanges.")
    masters: int = Field(
        1, ge=1, description="Servers: 1, or a root and masters - 1 others that each gather for some workers."
    )

    @property
    def servers(self) -> int:
        """Ranks, the first ones, that serve workers."""
        return self.masters


class DownpourConfig(ParameterServerConfig):
    """One server holds the parameters, workers send it gradients (Dean et al. 2012)."""

    name: Literal["downpour"] = "downpour"
    implementation = "nnlo_lib.algorithms.parameter_server.downpour:Downpour"
    capabilities = replace(SERVED, compression="any", one_model=True, elastic=True, keeps_gradients=True)
    synchronous: bool = Field(False, description="The server waits for all workers and averages.")
    optimizer: OptimizerConfig | None = Field(
        None, description="The server's update rule; null: that of `train`."
    )

    @property
    def server_optimizer(self) -> OptimizerConfig | None:
        """The servers' own update rule; None: that of `train`."""
        return self.optimizer

    @property
    def is_asynchronous(self) -> bool:
        """Whether no worker waits for another."""
        return not self.synchronous


class EASGDConfig(ParameterServerConfig):
    """Workers explore, tied by springs to a centre that the server holds (Zhang, Choromanska and LeCun 2015)."""

    name: Literal["easgd"] = "easgd"
    implementation = "nnlo_lib.algorithms.parameter_server.easgd:EASGD"
    capabilities = replace(SERVED, compression="cast", step="worker's", elastic=True)
    sync_every: int = Field(
        10, ge=1, description="Batches between two exchanges (tau, the communication period)."
    )
    synchronous: bool = Field(False, description="The server waits for all workers.")
    elastic_force: float = Field(
        0.9, gt=0, description="beta of the paper; alpha, the part of the distance moved, is beta / workers."
    )
    alpha: float | None = Field(None, gt=0, lt=1, description="Sets alpha itself, whatever elastic_force is.")

    @property
    def is_asynchronous(self) -> bool:
        """Whether no worker waits for another."""
        return not self.synchronous

    def faults(self, run: Any) -> Iterator[ConfigFault]:
        """Yield why a run (config.Run) cannot be: its springs overshoot."""
        workers = (run.parallel.ranks - self.masters) // run.parallel.processes_per_worker
        if self.alpha is None and self.elastic_force >= workers:
            yield ConfigFault(
                f"alpha = elastic_force / workers would be {self.elastic_force / workers:g}, and springs overshoot "
                f"from 1 on; take less than {workers}",
                ("algorithm", "elastic_force"),
            )


class GEMConfig(ParameterServerConfig):
    """Workers scale their updates so that all together move like one with momentum (Hermans and Louppe 2018)."""

    name: Literal["gem"] = "gem"
    implementation = "nnlo_lib.algorithms.parameter_server.gem:GEM"
    capabilities = replace(SERVED, compression="any", step="worker's")
    momentum: float = Field(0.9, ge=0, lt=1, description="Momentum of the proxy that the updates match.")
    kappa: float = Field(1.0, gt=0, description="How much faster than the proxy the workers may move.")
    largest_scale: float = Field(5.0, gt=0, description="Bound on the scale of an update.")


ParameterServerAlgorithmConfig = DownpourConfig | EASGDConfig | GEMConfig
