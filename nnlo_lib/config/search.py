"""A hyper-parameter search: what may change, who proposes, how long a candidate is tried, what is wanted."""

from typing import Annotated, Literal, Self

from pydantic import Discriminator, Field, Tag, model_validator

from nnlo_lib.config.base import ConfigModel, ImplementedConfig, raise_config_error
from nnlo_lib.config.space import SpaceConfig
from nnlo_lib.config.stopping import better_direction
from nnlo_lib.config.user_class import BUILT_IN, USER_CLASS, UserClassConfig, user_class_tag


class ForestSamplerConfig(ImplementedConfig):
    """Extremely randomized trees predict what was not tried; expected improvement decides."""

    name: Literal["forest"] = "forest"
    implementation = "nnlo_lib.search.samplers.forest:ForestSampler"
    initial: int = Field(10, ge=1, description="First so many trials are a Sobol sequence.")
    trees: int = Field(100, ge=1, description="Trees of the forest.")


class GaussianProcessSamplerConfig(ImplementedConfig):
    """A Gaussian process predicts what was not tried; expected improvement decides."""

    name: Literal["gp"] = "gp"
    implementation = "nnlo_lib.search.samplers.gp:GaussianProcessSampler"
    initial: int = Field(10, ge=1, description="First so many trials are a Sobol sequence.")


class GeneticSamplerConfig(ImplementedConfig):
    """Parents by tournament among the best, heuristic crossover, mutation that shrinks (NNLO's)."""

    name: Literal["genetic"] = "genetic"
    implementation = "nnlo_lib.search.samplers.genetic:GeneticSearch"
    population: int = Field(
        10, ge=2, description="So many of the best are parents; the first so many, random."
    )


class RandomSamplerConfig(ImplementedConfig):
    """Independent draws."""

    name: Literal["random"] = "random"
    implementation = "nnlo_lib.search.samplers.model_free:RandomDraws"


class SobolSamplerConfig(ImplementedConfig):
    """A scrambled Sobol sequence, which leaves smaller gaps than random draws."""

    name: Literal["sobol"] = "sobol"
    implementation = "nnlo_lib.search.samplers.model_free:SobolSequence"


class GridSamplerConfig(ImplementedConfig):
    """Every combination; ranges are cut into levels."""

    name: Literal["grid"] = "grid"
    implementation = "nnlo_lib.search.samplers.model_free:GridPoints"
    levels: int = Field(5, ge=2, description="Values of each range.")


class UserSamplerConfig(UserClassConfig):
    """A sampling method of your own: a subclass of nnlo_lib.Sampler."""

    base = "nnlo_lib.search.samplers.base:SamplingMethod"


BuiltInSamplerConfig = Annotated[
    ForestSamplerConfig
    | GaussianProcessSamplerConfig
    | GeneticSamplerConfig
    | RandomSamplerConfig
    | SobolSamplerConfig
    | GridSamplerConfig,
    Field(discriminator="name"),
]
SamplerConfig = Annotated[
    Annotated[BuiltInSamplerConfig, Tag(BUILT_IN)] | Annotated[UserSamplerConfig, Tag(USER_CLASS)],
    Discriminator(user_class_tag),
]


class FullFidelityConfig(ImplementedConfig):
    """Every trial is trained for train.epochs."""

    name: Literal["full"] = "full"
    implementation = "nnlo_lib.search.pruners.base:NoPruner"


class AshaConfig(ImplementedConfig):
    """Asynchronous successive halving, ASHA (Li et al. 2018, algorithm 2)."""

    name: Literal["asha"] = "asha"
    implementation = "nnlo_lib.search.pruners.asha:AshaPruner"
    first: int = Field(1, ge=1, description="Epochs of the first rung.")
    factor: int = Field(3, ge=2, description="The best 1/factor of a rung go on, to factor times the epochs.")


class HyperbandConfig(ImplementedConfig):
    """Asynchronous Hyperband: trials take turns in brackets of ASHA that start on higher and higher rungs."""

    name: Literal["hyperband"] = "hyperband"
    implementation = "nnlo_lib.search.pruners.hyperband:HyperbandPruner"
    first: int = Field(1, ge=1, description="Epochs of the lowest rung.")
    factor: int = Field(3, ge=2, description="The best 1/factor of a rung go on, to factor times the epochs.")


class MedianStoppingConfig(ImplementedConfig):
    """A trial pauses while its best value is worse than the median of the others' means (Golovin et al. 2017)."""

    name: Literal["median"] = "median"
    implementation = "nnlo_lib.search.pruners.median:MedianPruner"
    every: int = Field(1, ge=1, description="Epochs between two looks.")
    grace: int = Field(1, ge=1, description="Epochs that every trial gets.")
    trials: int = Field(5, ge=1, description="Others that must have come as far before one is ended.")


class UserPrunerConfig(UserClassConfig):
    """A pruner of your own: a subclass of nnlo_lib.Pruner."""

    base = "nnlo_lib.search.pruners.base:Pruner"


BuiltInFidelityConfig = Annotated[
    FullFidelityConfig | AshaConfig | HyperbandConfig | MedianStoppingConfig, Field(discriminator="name")
]
FidelityConfig = Annotated[
    Annotated[BuiltInFidelityConfig, Tag(BUILT_IN)] | Annotated[UserPrunerConfig, Tag(USER_CLASS)],
    Discriminator(user_class_tag),
]


class ObjectiveConfig(ConfigModel):
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
        smaller = (
            self.direction == "minimize" if self.direction else better_direction(self.metric) == "smaller"
        )
        return 1 if smaller else -1


class FoldsConfig(ConfigModel):
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
            raise_config_error(
                "folds are pruned where there are 3 or more (k), in turn (in_turn: true)", "prune"
            )
        return self


class BudgetConfig(ConfigModel):
    """When nothing more is begun; null: no limit."""

    hours: float | None = Field(None, gt=0, description="Hours since the search began, pauses not counted.")
    core_hours: float | None = Field(None, gt=0, description="Cores times hours of all trainings.")
    gpu_hours: float | None = Field(None, gt=0, description="GPUs times hours of all trainings.")


class MpiPoolConfig(ConfigModel):
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


class SearchConfig(ConfigModel):
    """A hyper-parameter search over the experiment around it."""

    space: SpaceConfig = Field(
        {},
        description="Keys of the experiment by their path, and what they may be: "
        "`train.optimizer.lr: {log_uniform: [1e-4, 1e-1]}`; also what the function of the model has as its "
        "`parameter_range`.",
    )
    method: SamplerConfig = Field(
        ForestSamplerConfig(), description="Who proposes: forest, gp, genetic, random, sobol or grid."
    )
    trials: int = Field(20, ge=1, description="Candidates; may be raised later, and all trials are kept.")
    parallel: int = Field(4, ge=1, description="Trainings at a time.")
    order: Literal["as_finished", "fixed"] = Field(
        "as_finished",
        description="as_finished: a proposal knows all that has ended, and writes down what it knew; fixed: it knows "
        "the results of all but the last `parallel` - 1 trainings before it, so that two searches are equal.",
    )
    seed: int = Field(0, ge=0, description="Of the proposals; trainings take the first of `seeds`.")
    folds: FoldsConfig = Field(FoldsConfig(), description="Cross-validation of each trial.")
    objective: ObjectiveConfig = Field(ObjectiveConfig(), description="What a trial is judged by.")
    fidelity: FidelityConfig = Field(
        FullFidelityConfig(), description="How long a trial is trained: full, asha, hyperband or median."
    )
    budget: BudgetConfig = Field(BudgetConfig(), description="When nothing more is begun.")
    blocks: MpiPoolConfig = Field(MpiPoolConfig(), description="How one MPI allocation is cut up.")
