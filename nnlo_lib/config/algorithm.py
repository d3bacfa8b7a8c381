"""Settings of collective and parameter-server algorithms, and the table of all algorithms by name.

`config.decentralized` has the settings of the algorithms on a graph.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field

from nnlo_lib.config.algorithm_base import BaseAlgorithmConfig, Capabilities, momentum_faults
from nnlo_lib.config.base import (
    BuiltInOr,
    UserClassConfig,
    block_types,
)
from nnlo_lib.config.compression import NoCompressionConfig
from nnlo_lib.config.decentralized import DecentralizedConfig, GossipConfig
from nnlo_lib.config.optimizer import WHOLE_KERNELS, OptimizerConfig, SGDConfig
from nnlo_lib.config.rules.loss_rules import RESTING
from nnlo_lib.core.user_code import load_implementation

RESTING_RANKS = "Fraction of the ranks, at least one, that train in a round; the others rest, and their samples are not used."
Participation = Annotated[float, Field(gt=0, le=1, description=RESTING_RANKS)]
SERVED = Capabilities(supports_server_tree=True, step="server's", asynchronous=True, min_ranks=2)


class AllReduceConfig(BaseAlgorithmConfig):
    """Synchronous data parallelism: every step averages the gradients of all ranks (Theano-MPI's BSP)."""

    name: Literal["allreduce"] = "allreduce"
    implementation = "nnlo_lib.algorithms.allreduce:AllReduce"
    capabilities = Capabilities(
        compression="any",
        supports_worker_groups=False,
        one_model=True,
        elastic=True,
        shares_gradient=True,
        keeps_critic_steps="without compression",
    )
    reduction: Literal["reproducible", "fastest"] = "reproducible"
    """Order in which gradients are added. reproducible: in rank order, bit-identical on every transport; fastest: in
    the order that MPI chooses."""
    bucket_mb: float = Field(0.0, ge=0)
    """Megabytes of gradient per message; messages are sent during the backward pass. 0: one message after the backward
    pass, which is faster if all ranks share a machine. With `reduction: reproducible`, results are bit-identical for
    every value."""
    shard: Literal["none", "optimizer"] = "none"
    """optimizer: each rank updates a part of the parameters and keeps the moments of this part only (ZeRO stage 1). The
    results are bit-identical, except with `train.clip_norm`."""

    @property
    def sums_in_rank_order(self) -> bool:
        """True if `reduction` is reproducible."""
        return self.reduction == "reproducible"

    def faults(self, run: Any) -> Iterator[str]:
        """Yield faults if a run (config.Run) combines `reduction: fastest` or `shard` with what they exclude."""
        rule, sharded = run.train.optimizer, "`algorithm.shard: optimizer`"
        whole = {
            "compression.name: none": (run.compression.name != "none", "compressors encode whole gradients"),
            "algorithm.reduction: reproducible": (not self.sums_in_rank_order, "parts are added in rank order"),
            "algorithm.bucket_mb: 0": (self.bucket_mb > 0, "parts are sent after the backward pass"),
            "train.optimizer.name: adamw": (rule.kernel in WHOLE_KERNELS, f"{rule.name} needs all parameters"),
            "train.precision: bf16": (run.train.precision == "fp16", "only one rank sees an overflow"),
            "problem.name: classification": (run.problem.name == "gan", "each network has an optimizer"),
        }  # fmt: skip
        for setting, (is_whole, reason) in whole.items():
            if self.shard == "optimizer" and is_whole:
                remedy = "" if setting.startswith("problem") else f"`{setting}`, or "
                yield f"{setting.partition(':')[0]}: not with {sharded}: {reason}; set {remedy}`algorithm.shard: none`"
        if self.reduction == "fastest" and not isinstance(run.compression, NoCompressionConfig):
            yield (
                "algorithm.reduction: compressed gradients are always added in rank order; remove `algorithm.reduction`"
            )


class AverageConfig(BaseAlgorithmConfig):
    """Local SGD: replicas train independently and average their parameters every few steps (Stich 2019)."""

    name: Literal["average"] = "average"
    implementation = "nnlo_lib.algorithms.local_sgd:Average"
    capabilities = Capabilities(
        compression="any", one_model=True, elastic=True, keeps_weight_clip="without compression"
    )
    sync_every: int = Field(10, ge=1)
    """Local steps between two averagings."""
    participation: Participation = 1.0
    proximal: float = Field(0.0, ge=0)
    """FedProx's mu: each gradient gets mu times the distance to the parameters of the round's start (Li et al. 2020)."""

    @property
    def reference(self) -> str:
        """Reference of the class: another one if the ranks are clients of federated averaging."""
        is_federated = self.some_ranks_rest or self.proximal
        return "nnlo_lib.algorithms.federated:FederatedAverage" if is_federated else self.implementation

    def faults(self, run: Any) -> Iterator[str]:
        """Yield what a run (config.Run) cannot combine with ranks that rest, or with the proximal term."""
        at = "algorithm.participation" if self.some_ranks_rest else "algorithm.proximal"
        if self.reference != self.implementation and not isinstance(run.compression, NoCompressionConfig):
            yield f"{at}: does not support compression; set `compression.name: none`, or remove `{at}`"
        if self.some_ranks_rest and run.parallel.processes_per_worker > 1:
            yield f"{at}: the processes of a worker cannot rest together; set `parallel.processes_per_worker: 1`"
        if self.proximal and run.train.precision == "fp16":
            yield "train.precision: fp16 would scale gradients without their proximal term; set `train.precision: bf16`"
        if self.proximal and (resting := getattr(run.problem, "resting_key", None)):
            moved, value = RESTING[resting]
            yield (
                f"algorithm.proximal: the term would move {moved} in every step; set `problem.{resting}: {value}`, or "
                "`algorithm.proximal: 0`"
            )


class DiLoCoConfig(BaseAlgorithmConfig):
    """Local steps, then an outer Nesterov step with the mean change as its gradient (Douillard et al. 2023)."""

    name: Literal["diloco"] = "diloco"
    implementation = "nnlo_lib.algorithms.local_sgd:DiLoCo"
    capabilities = Capabilities(compression="any", one_model=True, elastic=True, keeps_weight_clip="no")
    sync_every: int = Field(50, ge=1)
    """Local steps between two outer steps."""
    outer_lr: float = Field(0.7, gt=0)
    """Learning rate of the outer step."""
    outer_momentum: float = Field(0.9, ge=0, lt=1)
    """Nesterov momentum of the outer step."""
    fragments: int = Field(1, ge=1)
    """Equal parts of the parameters that take turns in `sync_every` steps, so that messages are smaller (Streaming
    DiLoCo)."""
    overlap: int = Field(0, ge=0)
    """Local steps that ranks take while the change of a part is sent; its outer step follows after them."""
    alpha: float | None = Field(None, ge=0, lt=1)
    """With `overlap`: weight of a rank's own parameters after an outer step; null: 0.5, as in the paper."""

    def faults(self, run: Any) -> Iterator[str]:
        """Yield faults if parts cannot take turns in `sync_every` steps, or `alpha` has no effect."""
        if self.fragments > self.sync_every:
            yield f"algorithm.fragments: must be at most `sync_every`, {self.sync_every}, so that each part has a step"
        if self.overlap >= self.sync_every:
            yield f"algorithm.overlap: must be below `sync_every`, {self.sync_every}, so that a part has one message"
        if self.alpha is not None and not self.overlap:
            yield "algorithm.alpha: has no effect without `algorithm.overlap`; set `algorithm.overlap: 1` or remove it"


class NoLoCoConfig(BaseAlgorithmConfig):
    """Local steps, then an outer step with momentum and the average of a random pair (Kolehmainen et al. 2025)."""

    name: Literal["noloco"] = "noloco"
    implementation = "nnlo_lib.algorithms.local_sgd:NoLoCo"
    capabilities = Capabilities(keeps_weight_clip="no")
    sync_every: int = Field(50, ge=1)
    """Local steps between two outer steps, each with another partner."""
    outer_lr: float = Field(0.7, gt=0)
    """Weight of the pair's mean change in the outer step."""
    outer_momentum: float = Field(0.5, ge=0, lt=1)
    """Momentum of the outer step."""
    gamma: float = Field(0.7, gt=0, lt=2)
    """Weight of the way to the pair's mean parameters in the outer step."""


class ScaffoldConfig(BaseAlgorithmConfig):
    """Federated averaging whose control variates correct the drift of unequal samples (Karimireddy et al. 2020)."""

    name: Literal["scaffold"] = "scaffold"
    implementation = "nnlo_lib.algorithms.federated:Scaffold"
    capabilities = Capabilities(
        supports_worker_groups=False, one_model=True, keeps_gradients=True, keeps_critic_steps="no"
    )
    sync_every: int = Field(10, ge=1)
    """Local steps of a round."""
    participation: Participation = 1.0

    def faults(self, run: Any) -> Iterator[str]:
        """Yield what makes the steps of a run (config.Run) others than theta <- theta - lr g, which scaffold corrects."""
        rule, why = run.train.optimizer, "scaffold corrects steps of theta <- theta - lr g only"
        if rule.name != "sgd" or rule.momentum:
            yield f"train.optimizer: {why}; set `train.optimizer: {{name: sgd, lr: 0.05}}`, without momentum"
        for section, key in ((run.train, "train.clip_norm"), (run.problem, "problem.generator_optimizer")):
            if getattr(section, key.partition(".")[2], None):
                yield f"{key}: {why}; remove `{key}`"


class IndividualConfig(BaseAlgorithmConfig):
    """Baseline: every replica trains on its own samples, without communication."""

    name: Literal["individual"] = "individual"
    implementation = "nnlo_lib.algorithms.local_sgd:Individual"
    capabilities = Capabilities()

    def faults(self, run: Any) -> Iterator[str]:
        """Yield a fault if a run (config.Run) scales the learning rate."""
        if run.train.scale_lr != "none":
            yield (
                "train.scale_lr: individual trains every worker alone, so that the number of workers does not matter; "
                "set `train.scale_lr: none`"
            )


CollectiveConfig = (
    AllReduceConfig | AverageConfig | DiLoCoConfig | NoLoCoConfig | ScaffoldConfig | IndividualConfig
)


class ParameterServerConfig(BaseAlgorithmConfig):
    """Settings that all parameter-server algorithms have."""

    sync_every: int = Field(1, ge=1)
    """Batches that a worker computes between two exchanges."""
    masters: int = Field(1, ge=1)
    """Number of servers: 1, or a root server and masters - 1 servers that each serve some of the workers."""

    @property
    def servers(self) -> int:
        """Number of server ranks; servers are the first ranks."""
        return self.masters


class DownpourConfig(ParameterServerConfig):
    """Workers send gradients to a server, which updates the parameters (Dean et al. 2012)."""

    name: Literal["downpour"] = "downpour"
    implementation = "nnlo_lib.algorithms.downpour:Downpour"
    capabilities = replace(
        SERVED,
        compression="any",
        one_model=True,
        elastic=True,
        keeps_gradients=True,
        keeps_critic_steps="without compression",
    )
    synchronous: bool = False
    """The server waits for all workers and averages their gradients."""
    optimizer: OptimizerConfig | None = None
    """Update rule of the server; null: `train.optimizer`."""

    @property
    def server_optimizer(self) -> OptimizerConfig | None:
        """Update rule of the servers; None: `train.optimizer`."""
        return self.optimizer

    @property
    def uses_train_optimizer(self) -> bool:
        """True unless the server has its own optimizer and answers every step of a worker."""
        return self.optimizer is None or self.sync_every > 1


class EASGDConfig(ParameterServerConfig):
    """An elastic force pulls workers to a center on the server (Zhang, Choromanska and LeCun 2015)."""

    name: Literal["easgd"] = "easgd"
    implementation = "nnlo_lib.algorithms.elastic_center:EASGD"
    capabilities = replace(
        SERVED,
        compression="cast",
        step="worker's",
        elastic=True,
        keeps_weight_clip="without compression",
    )
    sync_every: int = Field(10, ge=1)
    """Batches between two exchanges (tau, the communication period)."""
    synchronous: bool = False
    """The server waits for all workers in every exchange."""
    elastic_force: float = Field(0.9, gt=0)
    """beta of the paper; alpha, the fraction of the distance moved per exchange, is beta / workers."""
    alpha: float | None = Field(None, gt=0, lt=1)
    """Overrides alpha = elastic_force / workers; null: no override."""
    momentum: float = Field(0.0, ge=0, lt=1)
    """delta of the paper's EAMSGD, the workers' Nesterov momentum: gradients are computed at x + delta v. 0.99 in the
    paper, with SGD. Not for workers of several processes, fp16, or critic_steps above 1."""
    lr: float | None = Field(None, gt=0)
    """eta of the paper: the workers' optimizer is SGD with this learning rate, which `train.schedule`, `warm_up` and
    `scale_lr` change as usual; null: `train.optimizer`."""

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
    def exchanges_first(self) -> bool:
        """True: the center starts at the initial parameters."""
        return True

    def doubts(self, run: Any) -> Iterator[str]:
        """Yield a warning if `momentum` and the optimizer of a run (config.Run) both have momentum."""
        yield from _double_momentum(self, run.worker_train.optimizer)

    def faults(self, run: Any) -> Iterator[str]:
        """Yield faults if alpha of a run (config.Run) would be 1 or more, or its settings exclude `momentum`."""
        if self.momentum:
            yield from momentum_faults(run, "momentum")
        # With alpha of 1 or more, an exchange would move a worker onto the center or beyond it.
        if self.alpha is None and self.elastic_force >= run.workers:
            yield (
                f"algorithm.elastic_force: alpha = elastic_force / workers is {self.elastic_force / run.workers:g}, but must be "
                f"below 1; set `algorithm.elastic_force` below {run.workers}"
            )
        # Several pushes that are applied at once would move the center beyond the workers' parameters.
        together = (self.alpha * run.workers if self.alpha else self.elastic_force) > 1
        if together and (self.synchronous or self.masters > 1) and getattr(run.problem, "weight_clip", None):
            yield (
                "problem.weight_clip: easgd moves the center out of the bound if alpha * workers exceeds 1; set "
                "`algorithm.elastic_force: 0.9` without `algorithm.alpha`, or `problem.gradient_penalty: 10` instead"
            )


class GEMConfig(ParameterServerConfig):
    """Workers scale their updates so that their sum follows a proxy with momentum (Hermans and Louppe 2018)."""

    name: Literal["gem"] = "gem"
    implementation = "nnlo_lib.algorithms.elastic_center:GEM"
    capabilities = replace(SERVED, compression="any", step="worker's", keeps_weight_clip="no")
    momentum: float = Field(0.0, ge=0, lt=1)
    """Momentum of the proxy that the updates follow, 0.9 in the authors' code with SGD; with an optimizer that has
    momentum of its own, such as adam, both would multiply."""
    kappa: float = Field(1.0, gt=0)
    """Factor by which the workers may move faster than the proxy."""
    largest_scale: float = Field(5.0, gt=0)
    """Upper bound of the scale of an update."""

    def doubts(self, run: Any) -> Iterator[str]:
        """Yield a warning if proxy and optimizer of a run (config.Run) both have momentum."""
        yield from _double_momentum(self, run.train.optimizer)


def _double_momentum(algorithm: Any, optimizer: Any) -> Iterator[str]:
    """Yield a warning if the algorithm (config.GEMConfig, EASGDConfig) and the optimizer both have momentum."""
    if algorithm.momentum and (getattr(optimizer, "beta1", 0) or getattr(optimizer, "momentum", 0)):
        yield (
            f"algorithm.momentum: {algorithm.name} multiplies its momentum with the momentum of {optimizer.name}, which trains "
            "badly; set `algorithm.momentum: 0`, or an optimizer without momentum"
        )


ParameterServerAlgorithmConfig = DownpourConfig | EASGDConfig | GEMConfig


class UserAlgorithmConfig(UserClassConfig, BaseAlgorithmConfig):
    """An algorithm of your own: a subclass of nnlo_lib.Algorithm."""

    base = "nnlo_lib.algorithms.base:Algorithm"
    positional = 1  # the communicator

    @property
    def label(self) -> str:
        """Name of the class."""
        return self.class_name

    @property
    def capabilities(self) -> Capabilities:  # type: ignore[override]
        """The capabilities that the class declares; the defaults if the file of a past run is gone."""
        found: Capabilities = load_implementation(self.name).capabilities if self.exists else Capabilities()
        return found


BuiltInAlgorithmConfig = Annotated[
    CollectiveConfig | ParameterServerAlgorithmConfig | GossipConfig | DecentralizedConfig,
    Field(discriminator="name"),
]
AlgorithmConfig = BuiltInOr[BuiltInAlgorithmConfig, UserAlgorithmConfig]

# docs/reference/algorithms.md lists the algorithms in this order.
ALGORITHM_CONFIGS: dict[str, type[BaseAlgorithmConfig]] = {
    block.model_fields["name"].default: block
    for block in block_types(BuiltInAlgorithmConfig)
    if issubclass(block, BaseAlgorithmConfig) and not block.alias_of
}
ALGORITHMS: dict[str, Capabilities] = {name: block.capabilities for name, block in ALGORITHM_CONFIGS.items()}
