"""A hyper-parameter search: what may change, who proposes, how long a candidate is tried, what is wanted."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from nnlo_lib.config.space import Space
from nnlo_lib.config.stopping import better_of
from nnlo_lib.config.strict import Strict, refuse


class Forest(Strict):
    """Extremely randomized trees predict what was not tried; expected improvement decides."""

    name: Literal["forest"] = "forest"
    initial: int = Field(10, ge=1, description="First so many trials are a Sobol sequence.")
    trees: int = Field(100, ge=1, description="Trees of the forest.")


class GaussianProcess(Strict):
    """A Gaussian process predicts what was not tried; expected improvement decides."""

    name: Literal["gp"] = "gp"
    initial: int = Field(10, ge=1, description="First so many trials are a Sobol sequence.")


class Genetic(Strict):
    """Parents by tournament among the best, heuristic crossover, mutation that shrinks (NNLO's)."""

    name: Literal["genetic"] = "genetic"
    population: int = Field(
        10, ge=2, description="So many of the best are parents; the first so many, random."
    )


class Random(Strict):
    """Independent draws."""

    name: Literal["random"] = "random"


class Sobol(Strict):
    """A scrambled Sobol sequence, which leaves smaller gaps than random draws."""

    name: Literal["sobol"] = "sobol"


class Grid(Strict):
    """Every combination; ranges are cut into levels."""

    name: Literal["grid"] = "grid"
    levels: int = Field(5, ge=2, description="Values of each range.")


Method = Annotated[Forest | GaussianProcess | Genetic | Random | Sobol | Grid, Field(discriminator="name")]


class Full(Strict):
    """Every trial is trained for train.epochs."""

    name: Literal["full"] = "full"


class Halving(Strict):
    """Asynchronous successive halving, ASHA (Li et al. 2018, algorithm 2)."""

    name: Literal["asha"] = "asha"
    first: int = Field(1, ge=1, description="Epochs of the first rung.")
    factor: int = Field(3, ge=2, description="The best 1/factor of a rung go on, to factor times the epochs.")


class Hyperband(Strict):
    """Asynchronous Hyperband: trials take turns in brackets of ASHA that start on higher and higher rungs."""

    name: Literal["hyperband"] = "hyperband"
    first: int = Field(1, ge=1, description="Epochs of the lowest rung.")
    factor: int = Field(3, ge=2, description="The best 1/factor of a rung go on, to factor times the epochs.")


class MedianStopping(Strict):
    """A trial pauses while its best value is worse than the median of the others' means (Golovin et al. 2017)."""

    name: Literal["median"] = "median"
    every: int = Field(1, ge=1, description="Epochs between two looks.")
    grace: int = Field(1, ge=1, description="Epochs that every trial gets.")
    trials: int = Field(5, ge=1, description="Others that must have come as far before one is ended.")


Fidelity = Annotated[Full | Halving | Hyperband | MedianStopping, Field(discriminator="name")]


class Objective(Strict):
    """What a trial is judged by: mean over its folds of one metric."""

    metric: str = Field(
        "val_loss", description="Column of the history: val_loss, val_accuracy, train_loss ..."
    )
    direction: Literal["minimize", "maximize"] | None = Field(
        None, description="null: by the name, maximize accuracies and minimize errors and losses."
    )
    epoch: Literal["best", "last"] = Field("best", description="Which epoch of a fold counts.")
    target: float | None = Field(None, description="A best trial this good ends the search.")
    max_seconds: float | None = Field(
        None, gt=0, description="Trials that train longer than this, each fold, do not count."
    )
    max_parameters: int | None = Field(None, ge=1, description="Larger models are not trained at all.")

    @property
    def sign(self) -> int:
        """+1 where smaller is better, -1 where larger is."""
        smaller = self.direction == "minimize" if self.direction else better_of(self.metric) == "smaller"
        return 1 if smaller else -1


class Folds(Strict):
    """k-fold cross-validation of each trial."""

    k: int = Field(1, ge=1, description="Folds of a trial; 1: one split by data.validation.")
    in_turn: bool = Field(False, description="One fold after the other instead of all at a time.")
    prune: float | None = Field(
        None, gt=0, lt=1,
        description="In turn: no more folds once a paired test says, at this level, that the best trial is better.",
    )  # fmt: skip

    @model_validator(mode="after")
    def _pruned_in_turn(self) -> Self:
        if self.prune is not None and not (self.in_turn and self.k > 2):
            refuse("folds are pruned where there are 3 or more (k), in turn (in_turn: true)", "prune")
        return self


class Budget(Strict):
    """When nothing more is begun; null: no limit."""

    hours: float | None = Field(None, gt=0, description="Hours since the search began, pauses not counted.")
    core_hours: float | None = Field(None, gt=0, description="Cores times hours of all trainings.")
    gpu_hours: float | None = Field(None, gt=0, description="GPUs times hours of all trainings.")


class Blocks(Strict):
    """How one MPI allocation is cut up by `nnlo search --executor mpi`: rank 0 coordinates, blocks of ranks train."""

    size: int | None = Field(
        None, ge=1, description="Ranks of a block; null: parallel.ranks, which is this where it is not given."
    )
    ahead: int = Field(
        1, ge=0, description="Trainings decided before a block is free, so that none waits for a proposal; each knows "
        "so many results less. Not with order: fixed.",
    )  # fmt: skip
    deaths: int = Field(
        2,
        ge=1,
        description="A training that so many blocks died of, in all starts of the search, has failed.",
    )
    silence: float = Field(
        60.0,
        gt=0,
        description="Seconds without a sign of life after which a block on other hosts counts as dead.",
    )


class Search(Strict):
    """A hyper-parameter search over the experiment around it."""

    space: Space = Field(
        {},
        description="Keys of the experiment by their path, and what they may be: "
        "`train.optimizer.lr: {log_uniform: [1e-4, 1e-1]}`; also what the function of the model has as its "
        "`parameter_range`.",
    )
    method: Method = Field(Forest(), description="Who proposes: forest, gp, genetic, random, sobol or grid.")
    trials: int = Field(20, ge=1, description="Candidates; may be raised later, and all trials are kept.")
    parallel: int = Field(4, ge=1, description="Trainings at a time.")
    order: Literal["as_finished", "fixed"] = Field(
        "as_finished",
        description="as_finished: a proposal knows all that has ended, and writes down what it knew; fixed: it knows "
        "the results of all but the last `parallel` - 1 trainings before it, so that two searches are equal.",
    )
    seed: int = Field(0, ge=0, description="Of the proposals; trainings take the first of `seeds`.")
    folds: Folds = Field(Folds(), description="Cross-validation of each trial.")
    objective: Objective = Field(Objective(), description="What a trial is judged by.")
    fidelity: Fidelity = Field(
        Full(), description="How long a trial is trained: full, asha, hyperband or median."
    )
    budget: Budget = Field(Budget(), description="When nothing more is begun.")
    blocks: Blocks = Field(Blocks(), description="How one MPI allocation is cut up.")
