"""Settings of the parameter-server algorithms."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal

from pydantic import Field

from nnlo_lib.config.algorithm_base import BaseAlgorithmConfig, Capabilities
from nnlo_lib.config.base import ConfigFault
from nnlo_lib.config.optimizer import OptimizerConfig

SERVED = Capabilities(supports_server_tree=True, step="server's", asynchronous=True, min_ranks=2)


class ParameterServerConfig(BaseAlgorithmConfig):
    """Settings that all parameter-server algorithms have."""

    sync_every: int = Field(1, ge=1, description="Batches that a worker computes between two exchanges.")
    masters: int = Field(
        1,
        ge=1,
        description="Number of servers: 1, or a root server and masters - 1 servers that each serve some of the "
        "workers.",
    )

    @property
    def servers(self) -> int:
        """Number of server ranks; servers are the first ranks."""
        return self.masters


class DownpourConfig(ParameterServerConfig):
    """Workers send gradients to a server, which updates the parameters (Dean et al. 2012)."""

    name: Literal["downpour"] = "downpour"
    implementation = "nnlo_lib.algorithms.parameter_server.downpour:Downpour"
    capabilities = replace(SERVED, compression="any", one_model=True, elastic=True, keeps_gradients=True)
    synchronous: bool = Field(
        False, description="The server waits for all workers and averages their gradients."
    )
    optimizer: OptimizerConfig | None = Field(
        None, description="Update rule of the server; null: `train.optimizer`."
    )

    @property
    def server_optimizer(self) -> OptimizerConfig | None:
        """Update rule of the servers; None: `train.optimizer`."""
        return self.optimizer

    @property
    def is_asynchronous(self) -> bool:
        """True if no worker waits for another."""
        return not self.synchronous


class EASGDConfig(ParameterServerConfig):
    """An elastic force pulls workers to a center on the server (Zhang, Choromanska and LeCun 2015)."""

    name: Literal["easgd"] = "easgd"
    implementation = "nnlo_lib.algorithms.parameter_server.easgd:EASGD"
    capabilities = replace(SERVED, compression="cast", step="worker's", elastic=True)
    sync_every: int = Field(
        10, ge=1, description="Batches between two exchanges (tau, the communication period)."
    )
    synchronous: bool = Field(False, description="The server waits for all workers in every exchange.")
    elastic_force: float = Field(
        0.9,
        gt=0,
        description="beta of the paper; alpha, the fraction of the distance moved per exchange, is beta / workers.",
    )
    alpha: float | None = Field(
        None, gt=0, lt=1, description="Overrides alpha = elastic_force / workers; null: no override."
    )

    @property
    def is_asynchronous(self) -> bool:
        """True if no worker waits for another."""
        return not self.synchronous

    def faults(self, run: Any) -> Iterator[ConfigFault]:
        """Yield a fault if alpha of a run (config.Run) would be 1 or more."""
        # With alpha of 1 or more, an exchange would move a worker onto the center or beyond it.
        workers = (run.parallel.ranks - self.masters) // run.parallel.processes_per_worker
        if self.alpha is None and self.elastic_force >= workers:
            yield ConfigFault(
                f"alpha = elastic_force / workers is {self.elastic_force / workers:g}, but must be below 1; "
                f"set `algorithm.elastic_force` below {workers}",
                ("algorithm", "elastic_force"),
            )


class GEMConfig(ParameterServerConfig):
    """Workers scale their updates so that their sum follows a proxy with momentum (Hermans and Louppe 2018)."""

    name: Literal["gem"] = "gem"
    implementation = "nnlo_lib.algorithms.parameter_server.gem:GEM"
    capabilities = replace(SERVED, compression="any", step="worker's")
    momentum: float = Field(0.9, ge=0, lt=1, description="Momentum of the proxy that the updates follow.")
    kappa: float = Field(1.0, gt=0, description="Factor by which the workers may move faster than the proxy.")
    largest_scale: float = Field(5.0, gt=0, description="Upper bound of the scale of an update.")


ParameterServerAlgorithmConfig = DownpourConfig | EASGDConfig | GEMConfig
