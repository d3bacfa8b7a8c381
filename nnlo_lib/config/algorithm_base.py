"""What the settings of every algorithm declare: its capabilities and the class that implements it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from nnlo_lib.config.base import ConfigFault, ImplementedConfig
from nnlo_lib.config.optimizer import OptimizerConfig

GraphProperty = Literal[
    "connected", "symmetric", "doubly stochastic", "static", "bipartite", "eigenvalues above -1/3"
]
MIXING_GRAPH: tuple[GraphProperty, ...] = ("connected", "symmetric", "doubly stochastic")

StepOwner = Literal["worker's", "server's", "algorithm's"]


@dataclass(frozen=True)
class Capabilities:
    """What an algorithm needs of the rest of an experiment and what it allows: one row of the table in the docs.

    graph_properties: what the topology must be, empty where there is none; compression: of what is exchanged (cast:
    fp16 and bf16 only); supports_worker_groups: workers of several processes; supports_server_tree: servers below a
    server; step: whose rule it follows (only a worker's has a schedule); one_model: all ranks hold one model after an
    epoch; elastic: a run goes on with another number of ranks; asynchronous: unless set to be synchronous, no worker
    waits for another; compresses_changes: what is compressed is what changed since earlier rounds; shares_gradient:
    the ranks compute the gradient of each step together; keeps_gradients: gradients outlive their step.
    """

    graph_properties: tuple[GraphProperty, ...] = ()
    compression: Literal["any", "cast", "none"] = "none"
    supports_worker_groups: bool = True
    supports_server_tree: bool = False
    step: StepOwner = "worker's"
    one_model: bool = False
    elastic: bool = False
    asynchronous: bool = False
    min_ranks: int = 1
    compresses_changes: bool = True
    shares_gradient: bool = False
    keeps_gradients: bool = False

    @property
    def supports_schedule(self) -> bool:
        """Whether the learning rate may change as the run goes on."""
        return self.step == "worker's"

    @property
    def batch_norm_buffers(self) -> str:
        """What becomes of batch-norm statistics: averaged when replicas are, or each node's own."""
        return "averaged" if self.one_model or self.supports_server_tree else "own"


class BaseAlgorithmConfig(ImplementedConfig):
    """Settings of an algorithm; subclasses declare `implementation` and `capabilities`."""

    capabilities: ClassVar[Capabilities]
    alias_of: ClassVar[str] = ""  # the algorithm that this is another name of

    @property
    def label(self) -> str:
        """Name of the algorithm; the name of the run if the experiment has no `runs`."""
        return str(self.name)  # type: ignore[attr-defined]

    @property
    def servers(self) -> int:
        """Ranks, the first ones, that serve workers."""
        return 0

    @property
    def server_optimizer(self) -> OptimizerConfig | None:
        """The servers' own update rule; None: that of `train`."""
        return None

    @property
    def steps_per_round(self) -> int:
        """Local steps from one exchange with the neighbors to the next."""
        return 1

    @property
    def is_asynchronous(self) -> bool:
        """Whether no worker waits for another."""
        return self.capabilities.asynchronous

    @property
    def sums_in_rank_order(self) -> bool:
        """Whether sums have the same bits every time."""
        return True

    def faults(self, run: Any) -> Iterator[ConfigFault]:
        """Yield why a run (config.Run) cannot be, beyond what `capabilities` rules out."""
        yield from ()
