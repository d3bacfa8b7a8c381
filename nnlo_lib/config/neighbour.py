"""Algorithms in which nodes talk to their neighbours on a graph, round by round."""

from typing import Literal

from pydantic import Field

from nnlo_lib.config.strict import Strict


class DSGD(Strict):
    """Step, then average with the neighbours (Nedic and Ozdaglar 2009; Lian et al. 2017)."""

    name: Literal["dsgd"] = "dsgd"
    mixing: Literal["simultaneous", "in_place"] = Field(
        "simultaneous",
        description="in_place: node after node, each seeing what those before it made, as DiNNO's code does.",
    )


class DSGT(Strict):
    """Step along a tracker of the mean gradient, and average both with the neighbours (Pu and Nedic 2021)."""

    name: Literal["dsgt"] = "dsgt"


class D2(Strict):
    """Exact diffusion: remove what makes unequal data pull the nodes apart (Tang et al. 2018)."""

    name: Literal["d2"] = "d2"


class DiNNO(Strict):
    """Consensus ADMM: some primal steps on an augmented Lagrangian a round (Yu, Vincent and Schwager 2022)."""

    name: Literal["dinno"] = "dinno"
    rho: float = Field(0.5, gt=0, description="Penalty of disagreement in the first round.")
    rho_scaling: float = Field(1.0, gt=0, description="Factor on the penalty from round to round.")
    primal_iterations: int = Field(2, ge=1, description="Batches, and local steps, of a round.")
    persistent_optimizer: bool = Field(
        False, description="Keep the optimizer's moments from round to round; else each round starts afresh."
    )


class CADMM(DiNNO):
    """DiNNO by the name that its authors' code first gave it."""

    name: Literal["cadmm"] = "cadmm"  # type: ignore[assignment]


class ProxPDA(Strict):
    """Primal-dual with a linearised primal step (Hong, Hajinezhad and Zhao 2017)."""

    name: Literal["prox_pda"] = "prox_pda"
    beta: float = Field(
        10.0, gt=0, description="Penalty of disagreement; 1 / (2 beta neighbours) is the step."
    )


class NEXT(Strict):
    """Successive convex approximation with a tracker of the mean gradient (Di Lorenzo and Scutari 2016)."""

    name: Literal["next"] = "next"
    inner_steps: int = Field(2, ge=1, description="Batches, and local steps, on a round's surrogate.")
    tau: float = Field(0.1, ge=0, description="Pull of the surrogate to where the round began.")
    step: float = Field(1.0, gt=0, le=1, description="Part of the way to the surrogate's minimum in round 1.")
    step_decay: float = Field(
        0.0, ge=0, lt=1, description="mu in step <- step (1 - mu step) from round to round."
    )


class ChocoSGD(Strict):
    """Gossip of compressed differences to public copies (Koloskova, Stich and Jaggi 2019)."""

    name: Literal["choco_sgd"] = "choco_sgd"
    gamma: float = Field(
        0.5, gt=0, le=1, description="Consensus step: how far to move to the neighbours' copies."
    )
