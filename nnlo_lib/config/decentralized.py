"""Algorithms in which nodes talk to their neighbours on a graph, round by round."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal

from pydantic import Field

from nnlo_lib.config.algorithm_base import MIXING_GRAPH, BaseAlgorithmConfig, Capabilities
from nnlo_lib.config.base import ConfigFault
from nnlo_lib.config.compression import NoCompressionConfig

ON_GRAPH = Capabilities(graph_properties=MIXING_GRAPH, compression="cast", supports_worker_groups=False)


class DSGDConfig(BaseAlgorithmConfig):
    """Step, then average with the neighbours (Nedic and Ozdaglar 2009; Lian et al. 2017)."""

    name: Literal["dsgd"] = "dsgd"
    implementation = "nnlo_lib.algorithms.decentralized.dsgd:DSGD"
    capabilities = ON_GRAPH
    mixing: Literal["simultaneous", "in_place"] = Field(
        "simultaneous",
        description="in_place: node after node, each seeing what those before it made, as DiNNO's code does.",
    )

    def faults(self, run: Any) -> Iterator[ConfigFault]:
        """Yield why a run (config.Run) cannot be: in_place mixing compresses nothing."""
        if self.mixing == "in_place" and not isinstance(run.compression, NoCompressionConfig):
            yield ConfigFault(
                "in_place mixing sends parameters as they are; use simultaneous", ("algorithm", "mixing")
            )


class DSGTConfig(BaseAlgorithmConfig):
    """Step along a tracker of the mean gradient, and average both with the neighbours (Pu and Nedic 2021)."""

    name: Literal["dsgt"] = "dsgt"
    implementation = "nnlo_lib.algorithms.decentralized.dsgt:DSGT"
    capabilities = replace(ON_GRAPH, keeps_gradients=True)


class D2Config(BaseAlgorithmConfig):
    """Exact diffusion: remove what makes unequal data pull the nodes apart (Tang et al. 2018)."""

    name: Literal["d2"] = "d2"
    implementation = "nnlo_lib.algorithms.decentralized.d2:D2"
    capabilities = replace(ON_GRAPH, graph_properties=(*MIXING_GRAPH, "static", "eigenvalues above -1/3"))


class DiNNOConfig(BaseAlgorithmConfig):
    """Consensus ADMM: some primal steps on an augmented Lagrangian a round (Yu, Vincent and Schwager 2022)."""

    name: Literal["dinno"] = "dinno"
    implementation = "nnlo_lib.algorithms.decentralized.dinno:DiNNO"
    capabilities = replace(
        ON_GRAPH, graph_properties=("connected", "symmetric"), min_ranks=2, keeps_gradients=True
    )
    rho: float = Field(0.5, gt=0, description="Penalty of disagreement in the first round.")
    rho_scaling: float = Field(1.0, gt=0, description="Factor on the penalty from round to round.")
    primal_iterations: int = Field(2, ge=1, description="Batches, and local steps, of a round.")
    persistent_optimizer: bool = Field(
        False, description="Keep the optimizer's moments from round to round; else each round starts afresh."
    )

    @property
    def steps_per_round(self) -> int:
        """Local steps from one exchange with the neighbors to the next."""
        return self.primal_iterations


class CADMMConfig(DiNNOConfig):
    """DiNNO by the name that its authors' code first gave it."""

    name: Literal["cadmm"] = "cadmm"  # type: ignore[assignment]
    alias_of = "dinno"


class ProxPDAConfig(BaseAlgorithmConfig):
    """Primal-dual with a linearised primal step (Hong, Hajinezhad and Zhao 2017)."""

    name: Literal["prox_pda"] = "prox_pda"
    implementation = "nnlo_lib.algorithms.decentralized.prox_pda:ProxPDA"
    capabilities = replace(
        ON_GRAPH,
        graph_properties=("connected", "symmetric", "static"),
        step="algorithm's",
        min_ranks=2,
        keeps_gradients=True,
    )
    beta: float = Field(
        10.0, gt=0, description="Penalty of disagreement; 1 / (2 beta neighbours) is the step."
    )


class NEXTConfig(BaseAlgorithmConfig):
    """Successive convex approximation with a tracker of the mean gradient (Di Lorenzo and Scutari 2016)."""

    name: Literal["next"] = "next"
    implementation = "nnlo_lib.algorithms.decentralized.next:NEXT"
    capabilities = replace(ON_GRAPH, keeps_gradients=True)
    inner_steps: int = Field(2, ge=1, description="Batches, and local steps, on a round's surrogate.")
    tau: float = Field(0.1, ge=0, description="Pull of the surrogate to where the round began.")
    step: float = Field(1.0, gt=0, le=1, description="Part of the way to the surrogate's minimum in round 1.")
    step_decay: float = Field(
        0.0, ge=0, lt=1, description="mu in step <- step (1 - mu step) from round to round."
    )

    @property
    def steps_per_round(self) -> int:
        """Local steps from one exchange with the neighbors to the next."""
        return self.inner_steps


class ChocoSGDConfig(BaseAlgorithmConfig):
    """Gossip of compressed differences to public copies (Koloskova, Stich and Jaggi 2019)."""

    name: Literal["choco_sgd"] = "choco_sgd"
    implementation = "nnlo_lib.algorithms.decentralized.choco_sgd:ChocoSGD"
    capabilities = replace(ON_GRAPH, graph_properties=(*MIXING_GRAPH, "static"), compression="any")
    gamma: float = Field(
        0.5, gt=0, le=1, description="Consensus step: how far to move to the neighbours' copies."
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
