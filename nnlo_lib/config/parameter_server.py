"""Settings of the parameter-server algorithms."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal

from pydantic import Field

from nnlo_lib.config.algorithm_base import BaseAlgorithmConfig, Capabilities
from nnlo_lib.config.base import ConfigFault
from nnlo_lib.config.optimizer import OptimizerConfig, SGDConfig
from nnlo_lib.config.rules.worker_momentum import double_momentum, worker_momentum_faults

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
    capabilities = replace(
        SERVED,
        compression="any",
        one_model=True,
        elastic=True,
        keeps_gradients=True,
        keeps_critic_steps="without compression",
    )
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
    def uses_train_optimizer(self) -> bool:
        """True unless the server has its own optimizer and answers every step of a worker."""
        return self.optimizer is None or self.sync_every > 1

    @property
    def is_asynchronous(self) -> bool:
        """True if no worker waits for another."""
        return not self.synchronous


class EASGDConfig(ParameterServerConfig):
    """An elastic force pulls workers to a center on the server (Zhang, Choromanska and LeCun 2015)."""

    name: Literal["easgd"] = "easgd"
    implementation = "nnlo_lib.algorithms.parameter_server.easgd:EASGD"
    capabilities = replace(
        SERVED,
        compression="cast",
        step="worker's",
        elastic=True,
        keeps_weight_clip="without compression",
    )
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
    momentum: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="delta of the paper's EAMSGD, the workers' Nesterov momentum: gradients are computed at x + delta v. "
        "0.99 in the paper, with SGD. Not for workers of several processes, fp16, or critic_steps above 1.",
    )
    lr: float | None = Field(
        None,
        gt=0,
        description="eta of the paper: the workers' optimizer is SGD with this learning rate, which `train.schedule`, "
        "`warm_up` and `scale_lr` change as usual; null: `train.optimizer`.",
    )

    @property
    def arguments(self) -> dict[str, Any]:
        """Keyword arguments of the implementation; `lr` belongs to the optimizer."""
        return {key: value for key, value in super().arguments.items() if key != "lr"}

    @property
    def worker_optimizer(self) -> OptimizerConfig | None:
        """SGD with `lr`; None: `train.optimizer`."""
        return None if self.lr is None else SGDConfig(lr=self.lr)

    @property
    def uses_train_optimizer(self) -> bool:
        """True unless `lr` replaces it."""
        return self.lr is None

    @property
    def is_asynchronous(self) -> bool:
        """True if no worker waits for another."""
        return not self.synchronous

    @property
    def exchanges_first(self) -> bool:
        """True: the center starts at the initial parameters."""
        return True

    def doubts(self, run: Any) -> Iterator[str]:
        """Yield a warning if `momentum` and the optimizer of a run (config.Run) both have momentum."""
        yield from double_momentum(self, run.worker_train.optimizer)

    def faults(self, run: Any) -> Iterator[ConfigFault]:
        """Yield faults if alpha of a run (config.Run) would be 1 or more, or its settings exclude `momentum`."""
        if self.momentum:
            yield from worker_momentum_faults(run)
        # With alpha of 1 or more, an exchange would move a worker onto the center or beyond it.
        if self.alpha is None and self.elastic_force >= run.workers:
            yield ConfigFault(
                f"alpha = elastic_force / workers is {self.elastic_force / run.workers:g}, but must be below 1; "
                f"set `algorithm.elastic_force` below {run.workers}",
                ("algorithm", "elastic_force"),
            )
        # Several pushes that are applied at once would move the center beyond the workers' parameters.
        together = (self.alpha * run.workers if self.alpha else self.elastic_force) > 1
        if together and (self.synchronous or self.masters > 1) and getattr(run.problem, "weight_clip", None):
            yield ConfigFault(
                "easgd moves the center out of the bound if alpha * workers exceeds 1; set `algorithm.elastic_force: 0.9` "
                "without `algorithm.alpha`, or `problem.gradient_penalty: 10` instead",
                ("problem", "weight_clip"),
            )


class GEMConfig(ParameterServerConfig):
    """Workers scale their updates so that their sum follows a proxy with momentum (Hermans and Louppe 2018)."""

    name: Literal["gem"] = "gem"
    implementation = "nnlo_lib.algorithms.parameter_server.gem:GEM"
    capabilities = replace(SERVED, compression="any", step="worker's", keeps_weight_clip="no")
    momentum: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="Momentum of the proxy that the updates follow, 0.9 in the authors' code with SGD; with an optimizer "
        "that has momentum of its own, such as adam, both would multiply.",
    )
    kappa: float = Field(1.0, gt=0, description="Factor by which the workers may move faster than the proxy.")
    largest_scale: float = Field(5.0, gt=0, description="Upper bound of the scale of an update.")

    def doubts(self, run: Any) -> Iterator[str]:
        """Yield a warning if proxy and optimizer of a run (config.Run) both have momentum."""
        yield from double_momentum(self, run.train.optimizer)


ParameterServerAlgorithmConfig = DownpourConfig | EASGDConfig | GEMConfig
