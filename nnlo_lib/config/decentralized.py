"""Settings of the algorithms on a graph, where nodes exchange vectors with neighbors, and of the gossip algorithms."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal

from pydantic import Field

from nnlo_lib.config.algorithm_base import MIXING_GRAPH, BaseAlgorithmConfig, Capabilities, momentum_faults
from nnlo_lib.config.compression import NoCompressionConfig
from nnlo_lib.config.topology import DirectedEdgesGraphConfig

ON_GRAPH = Capabilities(
    graph_properties=MIXING_GRAPH,
    compression="cast",
    supports_worker_groups=False,
    keeps_weight_clip="without compression",
)


class QuasiGlobalMomentumConfig(BaseAlgorithmConfig):
    """Settings of algorithms that can have a momentum of the mixed parameters."""

    quasi_global_momentum: float = Field(0.0, ge=0, lt=1)
    """mu of quasi-global momentum (Lin et al. 2021), for nodes with different data: it follows the mixed parameters in
    place of the node's gradients. Replaces the momentum of `train.optimizer`; 0: none."""

    @property
    def arguments(self) -> dict[str, Any]:
        """Keyword arguments of the implementation; the momentum acts around it."""
        return {key: value for key, value in super().arguments.items() if key != "quasi_global_momentum"}

    def faults(self, run: Any) -> Iterator[str]:
        """Yield faults if the optimizer of a run (config.Run) has momentum, too, or its settings exclude momentum."""
        optimizer = run.train.optimizer
        own = getattr(optimizer, "beta1", 0) or getattr(optimizer, "momentum", 0)
        for key in ("quasi_global_momentum", "momentum_tracking"):
            if own and getattr(self, key, 0):
                yield (
                    f"algorithm.{key}: it replaces the momentum of the optimizer, and {optimizer.name} has its own; set "
                    f"`train.optimizer: {{name: sgd, momentum: 0}}`, or `algorithm.{key}: 0`"
                )
        if self.quasi_global_momentum:
            yield from momentum_faults(run, "quasi_global_momentum")


class DSGDConfig(QuasiGlobalMomentumConfig):
    """Local step, then averaging with the neighbors (Nedic and Ozdaglar 2009; Lian et al. 2017)."""

    name: Literal["dsgd"] = "dsgd"
    implementation = "nnlo_lib.algorithms.dsgd:DSGD"
    capabilities = ON_GRAPH
    mixing: Literal["simultaneous", "in_place"] = "simultaneous"
    """simultaneous: all nodes average the parameters from before the averaging; in_place: node after node, each with
    the new parameters of lower-numbered nodes, as in DiNNO's code."""

    def faults(self, run: Any) -> Iterator[str]:
        """Yield faults of the momentum, and one if a run (config.Run) combines `mixing: in_place` with compression."""
        yield from super().faults(run)
        if self.mixing == "in_place" and not isinstance(run.compression, NoCompressionConfig):
            yield "algorithm.mixing: in_place does not support compression; set `algorithm.mixing: simultaneous`"


class DSGTConfig(QuasiGlobalMomentumConfig):
    """Gradient tracking: nodes average parameters and an estimate of the mean gradient (Pu and Nedic 2021)."""

    name: Literal["dsgt"] = "dsgt"
    implementation = "nnlo_lib.algorithms.gradient_tracking:DSGT"
    capabilities = replace(ON_GRAPH, keeps_gradients=True, keeps_critic_steps="no")
    momentum_tracking: float = Field(0.0, ge=0, lt=1)
    """Momentum that the nodes track in place of the gradient (Takezawa et al. 2022, arXiv:2209.15505), for nodes with
    different data. Replaces the momentum of `train.optimizer`; 0: none."""

    def faults(self, run: Any) -> Iterator[str]:
        """Yield faults of the momentum, and one if both kinds are set."""
        yield from super().faults(run)
        if self.quasi_global_momentum and self.momentum_tracking:
            yield "algorithm.momentum_tracking: dsgt has one momentum; set `algorithm.quasi_global_momentum: 0`, or this key to 0"


class D2Config(QuasiGlobalMomentumConfig):
    """Exact diffusion: removes the error that unequal data of the nodes cause in DSGD (Tang et al. 2018)."""

    name: Literal["d2"] = "d2"
    implementation = "nnlo_lib.algorithms.dsgd:D2"
    capabilities = replace(
        ON_GRAPH,
        graph_properties=(*MIXING_GRAPH, "static", "eigenvalues above -1/3"),
        keeps_weight_clip="no",
    )


class DiNNOConfig(BaseAlgorithmConfig):
    """Consensus ADMM: each round has some primal steps on an augmented Lagrangian (Yu, Vincent and Schwager 2022)."""

    name: Literal["dinno"] = "dinno"
    implementation = "nnlo_lib.algorithms.admm:DiNNO"
    capabilities = replace(
        ON_GRAPH,
        graph_properties=("connected", "symmetric"),
        min_ranks=2,
        keeps_gradients=True,
        uses_mixing_weights=False,
        keeps_weight_clip="yes",
        keeps_critic_steps="no",
    )
    rho: float = Field(0.1, gt=0)
    """Penalty on the difference between neighbors in the first round."""
    rho_scaling: float = Field(1.0, gt=0)
    """Factor by which the penalty changes after each round."""
    primal_iterations: int = Field(2, ge=1)
    """Local steps per round, each on one batch."""
    persistent_optimizer: bool = False
    """Keep the optimizer's state between rounds; false: reset it in every round."""
    duals: Literal["node", "edge"] = "node"
    """node: one dual vector; edge: one for each neighbor, which acts only in rounds with this neighbor, for links that
    are often lost (`topology.drop`), and needs the memory of as many vectors."""


class CADMMConfig(DiNNOConfig):
    """Another name of `dinno`, from the first version of its authors' code."""

    name: Literal["cadmm"] = "cadmm"  # type: ignore[assignment]
    alias_of = "dinno"


class ProxPDAConfig(BaseAlgorithmConfig):
    """Primal-dual method with a linearized primal step (Hong, Hajinezhad and Zhao 2017), by default with momentum."""

    name: Literal["prox_pda"] = "prox_pda"
    implementation = "nnlo_lib.algorithms.admm:ProxPDA"
    capabilities = replace(
        ON_GRAPH,
        graph_properties=("connected", "symmetric", "static"),
        step="algorithm's",
        min_ranks=2,
        keeps_gradients=True,
        uses_mixing_weights=False,
        keeps_weight_clip="no",
        keeps_critic_steps="no",
    )
    beta: float | None = Field(None, gt=0)
    """Penalty on the difference between neighbors; the step size is 1 / (2 beta neighbors). null: 0.6 / neighbors,
    averaged over the two nodes of each link."""
    momentum: float = Field(0.9, ge=0, lt=1)
    """Weight of earlier gradients in the moving average that a step follows; 0: the gradient of the batch alone, as in
    the paper, which needs a larger `beta`."""


class NEXTConfig(BaseAlgorithmConfig):
    """Successive convex approximation with gradient tracking (Di Lorenzo and Scutari 2016)."""

    name: Literal["next"] = "next"
    implementation = "nnlo_lib.algorithms.gradient_tracking:NEXT"
    capabilities = replace(ON_GRAPH, keeps_gradients=True, keeps_critic_steps="no")
    inner_steps: int = Field(2, ge=1)
    """Local steps per round on the surrogate, each on one batch."""
    tau: float = Field(0.1, ge=0)
    """Weight of the surrogate's proximal term, which pulls to the round's first parameters."""
    step: float = Field(1.0, gt=0, le=1)
    """Fraction of the way to the surrogate's minimum in round 1."""
    step_decay: float = Field(0.0, ge=0, lt=1)
    """mu in step <- step (1 - mu step) after each round."""


class ChocoSGDConfig(BaseAlgorithmConfig):
    """Gossip of compressed differences to public copies of the parameters (Koloskova, Stich and Jaggi 2019)."""

    name: Literal["choco_sgd"] = "choco_sgd"
    implementation = "nnlo_lib.algorithms.dsgd:ChocoSGD"
    capabilities = replace(ON_GRAPH, graph_properties=(*MIXING_GRAPH, "static"), compression="any")
    gamma: float = Field(0.5, gt=0, le=1)
    """Consensus step: fraction of the way to the average of the neighbors' copies."""


DecentralizedConfig = (
    DSGDConfig
    | DSGTConfig
    | D2Config
    | CADMMConfig
    | DiNNOConfig
    | ProxPDAConfig
    | NEXTConfig
    | ChocoSGDConfig
)


class GoSGDConfig(BaseAlgorithmConfig):
    """At random steps, a node pushes its parameters and half of its weight to a random node (Blot et al. 2016)."""

    name: Literal["gosgd"] = "gosgd"
    implementation = "nnlo_lib.algorithms.push_sum:GoSGD"
    capabilities = Capabilities(
        compression="cast",
        asynchronous=True,
        min_ranks=2,
        supports_worker_groups=False,
        keeps_weight_clip="without compression",
    )
    probability: float = Field(0.01, gt=0, le=1)
    """Probability of a push after a step."""
    synchronous: bool = False
    """Wait for the pushes of the same step: slower with stragglers, but bit-identical in every run."""


class SGPConfig(BaseAlgorithmConfig):
    """Stochastic gradient push: weighted averages over directed graphs (Assran et al. 2019)."""

    name: Literal["sgp"] = "sgp"
    implementation = "nnlo_lib.algorithms.push_sum:SGP"
    capabilities = Capabilities(
        graph_properties=("connected",),
        compression="cast",
        compresses_changes=False,
        supports_worker_groups=False,
        keeps_weight_clip="without compression",
    )

    def faults(self, run: Any) -> Iterator[str]:
        """Yield a fault if a run (config.Run) bounds weights on a graph on which the nodes' weights differ."""
        is_uneven = any(isinstance(graph, DirectedEdgesGraphConfig) for graph in run.topology.graphs)
        # The optimizer bounds x = w z, and a node trains z; on the other graphs, every w is 1.
        if getattr(run.problem, "weight_clip", None) and is_uneven:
            yield (
                "problem.weight_clip: sgp bounds parameters that it then divides by the weight of the node; remove it and set "
                "`problem.gradient_penalty: 10`, or set another `topology.name` than directed_edges"
            )


class ADPSGDConfig(BaseAlgorithmConfig):
    """Asynchronous pairs: every active node averages with a random passive neighbor (Lian et al. 2018)."""

    name: Literal["adpsgd"] = "adpsgd"
    implementation = "nnlo_lib.algorithms.adpsgd:ADPSGD"
    capabilities = Capabilities(
        graph_properties=("connected", "symmetric", "static", "bipartite"),
        compression="cast",
        asynchronous=True,
        min_ranks=2,
        uses_mixing_weights=False,
        keeps_weight_clip="no",
    )


GossipConfig = GoSGDConfig | SGPConfig | ADPSGDConfig
