"""Settings of the synchronous algorithms on a graph: every round, nodes exchange vectors with their neighbors."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal

from pydantic import Field

from nnlo_lib.config.algorithm_base import MIXING_GRAPH, BaseAlgorithmConfig, Capabilities
from nnlo_lib.config.base import ConfigFault
from nnlo_lib.config.compression import NoCompressionConfig

ON_GRAPH = Capabilities(
    graph_properties=MIXING_GRAPH,
    compression="cast",
    supports_worker_groups=False,
    keeps_weight_clip="without compression",
)


class DSGDConfig(BaseAlgorithmConfig):
    """Local step, then averaging with the neighbors (Nedic and Ozdaglar 2009; Lian et al. 2017)."""

    name: Literal["dsgd"] = "dsgd"
    implementation = "nnlo_lib.algorithms.decentralized.dsgd:DSGD"
    capabilities = ON_GRAPH
    mixing: Literal["simultaneous", "in_place"] = Field(
        "simultaneous",
        description="simultaneous: all nodes average the parameters from before the averaging; in_place: node after "
        "node, each with the new parameters of lower-numbered nodes, as in DiNNO's code.",
    )

    def faults(self, run: Any) -> Iterator[ConfigFault]:
        """Yield a fault if a run (config.Run) combines `mixing: in_place` with compression."""
        if self.mixing == "in_place" and not isinstance(run.compression, NoCompressionConfig):
            yield ConfigFault(
                "in_place does not support compression; set `algorithm.mixing: simultaneous`",
                ("algorithm", "mixing"),
            )


class DSGTConfig(BaseAlgorithmConfig):
    """Gradient tracking: nodes average parameters and an estimate of the mean gradient (Pu and Nedic 2021)."""

    name: Literal["dsgt"] = "dsgt"
    implementation = "nnlo_lib.algorithms.decentralized.dsgt:DSGT"
    capabilities = replace(ON_GRAPH, keeps_gradients=True, keeps_critic_steps="no")


class D2Config(BaseAlgorithmConfig):
    """Exact diffusion: removes the error that unequal data of the nodes cause in DSGD (Tang et al. 2018)."""

    name: Literal["d2"] = "d2"
    implementation = "nnlo_lib.algorithms.decentralized.d2:D2"
    capabilities = replace(
        ON_GRAPH,
        graph_properties=(*MIXING_GRAPH, "static", "eigenvalues above -1/3"),
        keeps_weight_clip="no",
    )


class DiNNOConfig(BaseAlgorithmConfig):
    """Consensus ADMM: each round has some primal steps on an augmented Lagrangian (Yu, Vincent and Schwager 2022)."""

    name: Literal["dinno"] = "dinno"
    implementation = "nnlo_lib.algorithms.decentralized.dinno:DiNNO"
    capabilities = replace(
        ON_GRAPH,
        graph_properties=("connected", "symmetric"),
        min_ranks=2,
        keeps_gradients=True,
        uses_mixing_weights=False,
        keeps_weight_clip="yes",
        keeps_critic_steps="no",
    )
    rho: float = Field(
        0.1, gt=0, description="Penalty on the difference between neighbors in the first round."
    )
    rho_scaling: float = Field(1.0, gt=0, description="Factor by which the penalty changes after each round.")
    primal_iterations: int = Field(2, ge=1, description="Local steps per round, each on one batch.")
    persistent_optimizer: bool = Field(
        False, description="Keep the optimizer's state between rounds; false: reset it in every round."
    )


class CADMMConfig(DiNNOConfig):
    """Another name of `dinno`, from the first version of its authors' code."""

    name: Literal["cadmm"] = "cadmm"  # type: ignore[assignment]
    alias_of = "dinno"


class ProxPDAConfig(BaseAlgorithmConfig):
    """Primal-dual method with a linearized primal step (Hong, Hajinezhad and Zhao 2017), by default with momentum."""

    name: Literal["prox_pda"] = "prox_pda"
    implementation = "nnlo_lib.algorithms.decentralized.prox_pda:ProxPDA"
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
    beta: float | None = Field(
        None,
        gt=0,
        description="Penalty on the difference between neighbors; the step size is 1 / (2 beta neighbors). null: 0.6 / "
        "neighbors, averaged over the two nodes of each link.",
    )
    momentum: float = Field(
        0.9,
        ge=0,
        lt=1,
        description="Weight of earlier gradients in the moving average that a step follows; 0: the gradient of the "
        "batch alone, as in the paper, which needs a larger `beta`.",
    )


class NEXTConfig(BaseAlgorithmConfig):
    """Successive convex approximation with gradient tracking (Di Lorenzo and Scutari 2016)."""

    name: Literal["next"] = "next"
    implementation = "nnlo_lib.algorithms.decentralized.next:NEXT"
    capabilities = replace(ON_GRAPH, keeps_gradients=True, keeps_critic_steps="no")
    inner_steps: int = Field(
        2, ge=1, description="Local steps per round on the surrogate, each on one batch."
    )
    tau: float = Field(
        0.1,
        ge=0,
        description="Weight of the surrogate's proximal term, which pulls to the round's first parameters.",
    )
    step: float = Field(
        1.0, gt=0, le=1, description="Fraction of the way to the surrogate's minimum in round 1."
    )
    step_decay: float = Field(
        0.0, ge=0, lt=1, description="mu in step <- step (1 - mu step) after each round."
    )


class ChocoSGDConfig(BaseAlgorithmConfig):
    """Gossip of compressed differences to public copies of the parameters (Koloskova, Stich and Jaggi 2019)."""

    name: Literal["choco_sgd"] = "choco_sgd"
    implementation = "nnlo_lib.algorithms.decentralized.choco_sgd:ChocoSGD"
    capabilities = replace(ON_GRAPH, graph_properties=(*MIXING_GRAPH, "static"), compression="any")
    gamma: float = Field(
        0.5,
        gt=0,
        le=1,
        description="Consensus step: fraction of the way to the average of the neighbors' copies.",
    )


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
