"""Base class of the algorithms' settings: capabilities and implementing class."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from nnlo_lib.config.base import ImplementedConfig
from nnlo_lib.config.optimizer import OptimizerConfig
from nnlo_lib.config.rules.loss_rules import RESTING

GraphProperty = Literal[
    "connected", "symmetric", "doubly stochastic", "static", "bipartite", "eigenvalues above -1/3"
]
MIXING_GRAPH: tuple[GraphProperty, ...] = ("connected", "symmetric", "doubly stochastic")

# Of a setting of GANs: whether an algorithm keeps it.
GanGuarantee = Literal["yes", "without compression", "no"]
StepOwner = Literal["worker's", "server's", "algorithm's"]


@dataclass(frozen=True)
class Capabilities:
    """Requirements and features of an algorithm: one row of the table in docs/reference/algorithms.md."""

    # properties that the topology must have; empty for algorithms without a graph
    graph_properties: tuple[GraphProperty, ...] = ()
    # compressors allowed for exchanged vectors; "cast": only fp16 and bf16
    compression: Literal["any", "cast", "none"] = "none"
    supports_worker_groups: bool = True  # True if a worker can consist of several processes
    supports_server_tree: bool = False  # True if there can be several servers, below a root server
    # owner of the update rule. Only a worker's update rule supports learning-rate schedules.
    step: StepOwner = "worker's"
    one_model: bool = False  # True if all ranks hold the same model after an epoch
    elastic: bool = False  # True if a run can resume with another number of ranks
    # True if workers do not wait for each other, unless the settings make the run synchronous
    asynchronous: bool = False
    min_ranks: int = 1  # smallest number of ranks, if a worker is one rank
    compresses_changes: bool = True  # True if the compressed vectors are changes since earlier rounds
    shares_gradient: bool = False  # True if all ranks compute the gradient of each step together
    keeps_gradients: bool = False  # True if gradients are kept beyond their step
    uses_mixing_weights: bool = True  # True if the weights of the graph's links matter, not only the links
    # whether weights stay within problem.weight_clip: exchanges only average weights
    keeps_weight_clip: GanGuarantee = "yes"
    # whether the optimizer moves the generator only in its own steps: parameters without a gradient get no part of
    # earlier gradients, duals or trackers
    keeps_critic_steps: GanGuarantee = "yes"

    @property
    def supports_schedule(self) -> bool:
        """True if the learning rate can follow a schedule."""
        return self.step == "worker's"

    @property
    def batch_norm_buffers(self) -> str:
        """Handling of batch-norm statistics: "averaged" together with the replicas, or each node's "own"."""
        return "own" if self.replicas_differ else "averaged"

    @property
    def replicas_differ(self) -> bool:
        """True if each rank evaluates and keeps its own model; False if there is one common model."""
        return not (self.one_model or self.supports_server_tree)


class BaseAlgorithmConfig(ImplementedConfig):
    """Settings of an algorithm; subclasses declare `implementation` and `capabilities`."""

    capabilities: ClassVar[Capabilities]
    alias_of: ClassVar[str] = ""  # name of the same algorithm under its main name; empty for a main name

    @property
    def label(self) -> str:
        """Name of the algorithm; the name of the run if the experiment has no `runs`."""
        return str(self.name)  # type: ignore[attr-defined]

    @property
    def servers(self) -> int:
        """Number of server ranks; servers are the first ranks."""
        return 0

    @property
    def server_optimizer(self) -> OptimizerConfig | None:
        """Update rule of the servers; None: `train.optimizer`."""
        return None

    @property
    def worker_optimizer(self) -> OptimizerConfig | None:
        """Update rule of the workers, which `train.schedule` still changes; None: `train.optimizer`."""
        return None

    @property
    def uses_train_optimizer(self) -> bool:
        """True if any rank updates parameters by `train.optimizer`."""
        return self.capabilities.step != "algorithm's"

    @property
    def exchanges_first(self) -> bool:
        """True if the initial parameters stay a part of the model: they are exchanged before the first step."""
        return False

    @property
    def is_asynchronous(self) -> bool:
        """True if no worker waits for another; a key `synchronous` makes them wait."""
        return self.capabilities.asynchronous and not getattr(self, "synchronous", False)

    @property
    def some_ranks_rest(self) -> bool:
        """True if only some ranks take part in a round: an epoch does not use all samples."""
        return bool(getattr(self, "participation", 1) < 1)

    @property
    def sums_in_rank_order(self) -> bool:
        """True if sums are added in rank order, so that they are bit-identical in every run."""
        return True

    def doubts(self, run: Any) -> Iterator[str]:
        """Yield warnings of settings of a run (config.Run) that are valid, but known to train badly."""
        yield from ()

    def faults(self, run: Any) -> Iterator[str]:
        """Yield the faults of a run (config.Run) that do not follow from `capabilities`, as `key: sentence`."""
        yield from ()


def momentum_faults(run: Any, key: str) -> Iterator[str]:
    """Yield the settings of a run (config.Run) that a momentum outside the optimizer, of this key, would break."""
    at, off = f"algorithm.{key}", f"`algorithm.{key}: 0`"
    if run.parallel.processes_per_worker > 1:
        yield (
            f"{at}: the processes of a worker share parameters, but only one of them has the momentum; "
            f"set `parallel.processes_per_worker: 1`, or {off}"
        )
    if run.train.precision == "fp16":
        yield (
            f"{at}: the momentum also moves parameters in a step that fp16 skips; set `train.precision: bf16`, or {off}"
        )
    for key in ("weight_clip", "generator_optimizer"):
        if getattr(run.problem, key, None):
            yield (
                f"{at}: the momentum of {run.algorithm.name} is added after the step that `problem.{key}` changes; "
                f"set {off}, or remove `problem.{key}`"
            )
    if resting := getattr(run.problem, "resting_key", None):
        moved, value = RESTING[resting]
        yield f"{at}: the momentum would move {moved} in every step; set `problem.{resting}: {value}`, or {off}"
