"""Settings of a hyperparameter search: search space, sampler, fidelity, folds, objective and budget."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from nnlo_lib.config.base import (
    BuiltInOr,
    ConfigModel,
    EditEffect,
    Hours,
    ImplementedConfig,
    UserClassConfig,
    UserPath,
    raise_config_error,
)
from nnlo_lib.config.metrics import check_accuracy_range
from nnlo_lib.config.space import SpaceConfig, Value
from nnlo_lib.config.stopping import better_direction

DEFAULT_TRIALS = 20
PromotionFactor = Annotated[
    int,
    Field(
        ge=2, description="The best 1/factor of the trials of a rung are promoted to factor times the epochs."
    ),
]


class AutoSamplerConfig(ImplementedConfig):
    """Expected improvement, predicted by a Gaussian process from the known results."""

    name: Literal["auto"] = "auto"
    implementation = "nnlo_lib.search.samplers.bayesian:BayesianSampler"
    initial: int | None = Field(None, ge=1)
    """Number of first trials, which are points of a Sobol sequence; null: two for each key, from 6 to 20."""


class SkoptSamplerConfig(ImplementedConfig):
    """`skopt.Optimizer` of scikit-optimize, which gets all known results; trainings in progress count with the smallest value."""

    name: Literal["skopt"] = "skopt"
    implementation = "nnlo_lib.search.samplers.skopt_optimizer:SkoptSampler"
    base_estimator: Literal["GP", "RF", "ET", "GBRT"] = "GP"
    """Model: a Gaussian process, random forest, extremely randomized trees, or gradient boosting."""
    acq_func: Literal["gp_hedge", "EI", "LCB", "PI"] = "gp_hedge"
    """Acquisition function."""
    initial: int = Field(10, ge=1)
    """Number of first trials, which are points of a Sobol sequence."""


class GeneticSamplerConfig(ImplementedConfig):
    """NNLO's genetic search: tournament selection, heuristic crossover, and mutation that decreases over time."""

    name: Literal["genetic"] = "genetic"
    implementation = "nnlo_lib.search.samplers.model_free:GeneticSearch"
    population: int = Field(10, ge=2)
    """Number of best trials that can be parents; as many trials at the start are random."""


class RandomSamplerConfig(ImplementedConfig):
    """Independent random points."""

    name: Literal["random"] = "random"
    implementation = "nnlo_lib.search.samplers.model_free:RandomDraws"


class SobolSamplerConfig(ImplementedConfig):
    """A scrambled Sobol sequence, which covers the search space more evenly than random points."""

    name: Literal["sobol"] = "sobol"
    implementation = "nnlo_lib.search.samplers.model_free:SobolSequence"


class GridSamplerConfig(ImplementedConfig):
    """Grid search: all combinations; ranges are divided into `levels` values."""

    name: Literal["grid"] = "grid"
    implementation = "nnlo_lib.search.samplers.model_free:GridPoints"
    levels: int = Field(5, ge=2)
    """Number of values of each range."""


class UserSamplerConfig(UserClassConfig):
    """A sampling method of your own: a subclass of nnlo_lib.Sampler."""

    base = "nnlo_lib.search.samplers.base:Sampler"
    positional = 2  # the space and the seed


BuiltInSamplerConfig = Annotated[
    AutoSamplerConfig
    | SkoptSamplerConfig
    | GeneticSamplerConfig
    | RandomSamplerConfig
    | SobolSamplerConfig
    | GridSamplerConfig,
    Field(discriminator="name"),
]
SamplerConfig = BuiltInOr[BuiltInSamplerConfig, UserSamplerConfig]


class FullFidelityConfig(ImplementedConfig):
    """Every trial is trained for `train.epochs` epochs."""

    name: Literal["full"] = "full"
    implementation = "nnlo_lib.search.pruners:NoPruner"


class AshaConfig(ImplementedConfig):
    """Asynchronous successive halving, ASHA (Li et al. 2018, algorithm 2)."""

    name: Literal["asha"] = "asha"
    implementation = "nnlo_lib.search.pruners:AshaPruner"
    first: int = Field(1, ge=1)
    """Epochs of the first rung."""
    factor: PromotionFactor = 3


class HyperbandConfig(ImplementedConfig):
    """Asynchronous Hyperband: trials are distributed over brackets of ASHA that start at different rungs."""

    name: Literal["hyperband"] = "hyperband"
    implementation = "nnlo_lib.search.pruners:HyperbandPruner"
    first: int = Field(1, ge=1)
    """Epochs of the lowest rung."""
    factor: PromotionFactor = 3


class MedianStoppingConfig(ImplementedConfig):
    """A trial pauses while its best value is worse than the median of the other trials' means (Golovin et al. 2017)."""

    name: Literal["median"] = "median"
    implementation = "nnlo_lib.search.pruners:MedianPruner"
    every: int = Field(1, ge=1)
    """Epochs between two checks of a trial."""
    grace: int = Field(1, ge=1)
    """Epochs that every trial is trained before its first check."""
    trials: int = Field(5, ge=1)
    """Number of other trials that must have as many epochs before a trial can pause."""


class PopulationConfig(ImplementedConfig):
    """Population-based training: bad trials are replaced by changed copies of good ones (Jaderberg et al. 2017)."""

    name: Literal["pbt"] = "pbt"
    implementation = "nnlo_lib.search.population:PopulationPruner"
    population: int = Field(8, ge=2)
    """Number of trials that the sampler proposes; each trial that is replaced is followed by one other."""
    every: int = Field(1, ge=1)
    """Epochs between two comparisons of the trials."""
    quantile: float = Field(0.25, gt=0, le=0.5)
    """Share of the trials that is replaced at each comparison, at least one trial, and of the best, which are copied."""
    factors: tuple[Annotated[float, Field(gt=0)], ...] = Field((0.8, 1.25), min_length=1)
    """Factors, one of which multiplies a number of a copied point, within its range; a factor above 1 moves a choice to the
    next value of its list, another one to the previous value."""
    resample: float = Field(0.25, ge=0, le=1)
    """Probability with which a key of a copied point is drawn again instead."""


class UserPrunerConfig(UserClassConfig):
    """A pruner of your own: a subclass of nnlo_lib.Pruner."""

    base = "nnlo_lib.search.pruners:Pruner"


BuiltInFidelityConfig = Annotated[
    FullFidelityConfig | AshaConfig | HyperbandConfig | MedianStoppingConfig | PopulationConfig,
    Field(discriminator="name"),
]
FidelityConfig = BuiltInOr[BuiltInFidelityConfig, UserPrunerConfig]


class DirectedMetricConfig(ConfigModel):
    """A further objective of a search. Its value of a fold is that of the epoch that the first objective selects."""

    metric: str = Field(examples=["parameters"])
    """Column of the history: val_loss, val_accuracy, train_loss, seconds ...; or parameters, their number in the model."""
    direction: Literal["minimize", "maximize"] | None = None
    """Direction of the optimization; null: by the name of the metric (accuracies are maximized, errors and losses
    minimized, also seconds and parameters)."""

    @property
    def sign(self) -> int:
        """Sign of the objective: +1 if smaller values are better, -1 if larger values are better."""
        smaller = (
            self.direction == "minimize" if self.direction else better_direction(self.metric) == "smaller"
        )
        return 1 if smaller else -1


class ObjectiveConfig(DirectedMetricConfig):
    """The objective of a search: one metric, averaged over the folds of a trial.

    A list of objectives is its first entry with the rest as `others`: the search then looks for their Pareto front.
    """

    metric: str = "val_loss"
    """Column of the history: val_loss, val_accuracy, train_loss, seconds ...; or parameters, their number in the model."""
    epoch: Literal["best", "last"] = "best"
    """Epoch of a fold whose value counts."""
    target: Annotated[float | None, EditEffect.SEARCH_END] = None
    """Value of the best trial that ends the search; null: none."""
    max_seconds: float | None = Field(None, gt=0)
    """Maximum training time of a fold; trials that exceed it do not count; null: no limit."""
    max_parameters: int | None = Field(None, ge=1)
    """Maximum number of model parameters; larger models are not trained; null: no limit."""
    others: tuple[DirectedMetricConfig, ...] | None = None
    """Further objectives; null: none."""

    @model_validator(mode="before")
    @classmethod
    def _from_list(cls, value: Any) -> Any:
        match value:
            case [dict() as first, *others]:
                return {**first, "others": others} if others else first
        return value

    @model_validator(mode="after")
    def _target_within_range(self) -> Self:
        check_accuracy_range(self.metric, self.target, "target")
        return self


class FoldsConfig(ConfigModel):
    """k-fold cross-validation of each trial."""

    k: int = Field(1, ge=1)
    """Number of folds of a trial; 1: one split by `data.validation`."""
    in_turn: bool = False
    """Train the folds of a trial one after another; false: in parallel."""
    prune: float | None = Field(None, gt=0, lt=1)
    """Significance level of a paired test; if the best trial is significantly better, a trial gets no more folds.
    Requires `in_turn: true` and k of at least 3. null: no test."""

    @model_validator(mode="after")
    def _pruned_in_turn(self) -> Self:
        if self.prune is not None and not (self.in_turn and self.k > 2):
            raise_config_error(
                "requires three or more folds in turn; set `search.folds.k: 3` or more and `search.folds.in_turn: true`",
                "prune",
            )
        return self


class BudgetConfig(ConfigModel):
    """Budget of a search; if a limit is reached, no further training starts."""

    hours: Hours | None = None
    """Hours in which the search trains, or a time such as 90m or 1-12:00:00; pauses do not count; null: no limit."""
    core_hours: float | None = Field(None, gt=0)
    """Cores times hours of all trainings; null: no limit."""
    gpu_hours: float | None = Field(None, gt=0)
    """GPUs times hours of all trainings; null: no limit."""


class MpiPoolConfig(ConfigModel):
    """Division of one MPI allocation by `nnlo search --executor mpi`: rank 0 coordinates, rank groups train."""

    size: int | None = Field(None, ge=1)
    """Ranks of a rank group, equal to `parallel.ranks`; null: `parallel.ranks`. If only this key is set,
    `parallel.ranks` gets its value."""
    ahead: int = Field(1, ge=0)
    """Number of trainings that are proposed before a rank group is free, so that no group waits for a proposal; such a
    proposal uses up to as many results less. Not used with `order: fixed`."""
    deaths: int = Field(2, ge=1)
    """Number of lost rank groups, over all starts of the search, after which the training counts as failed."""
    silence: float = Field(60.0, gt=0)
    """Seconds without a heartbeat after which a rank group counts as lost, if its leader is on another host or
    stopped."""


class SearchConfig(ConfigModel):
    """A hyperparameter search over the settings of the experiment."""

    space: SpaceConfig = Field({})
    """Search space: paths of keys and their possible values, such as `train.optimizer.lr: {log_uniform: [1e-4, 1e-1]}`.
    The `parameter_range` of the model's function is added."""
    start: tuple[dict[str, Value], ...] = ()
    """Points that are tried first, after the experiment's own settings, such as `[{train.optimizer.lr: 0.01}]`; for the
    keys that a point leaves out, the experiment's own values."""
    known: UserPath | None = None
    """Table of another search (`trials.csv`): the values of its finished trials count for the proposals, as if these trials
    had been made before the first one. null: none."""
    method: SamplerConfig = AutoSamplerConfig()
    """Sampler that proposes trials."""
    trials: Annotated[int | None, EditEffect.SEARCH_END] = Field(None, ge=1)
    """Number of trials; it can be raised later, and existing trials are kept. null: 20, and all points of a grid."""
    parallel: Annotated[int, EditEffect.SEARCH_END] = Field(4, ge=1)
    """Number of trainings in parallel. If it is not written, `nnlo search` on one machine trains only as many as have
    cores of their own, unless `order` is fixed."""
    tasks_per_job: Annotated[Annotated[int, Field(ge=1)] | Literal["auto"], EditEffect.NEXT_ATTEMPT] = 1
    """Fold tasks that one job of the DAG trains one after another, so that it is submitted and started only once. auto: as
    many as take 5 minutes, by the fold tasks that have ended. `parallel` counts the fold tasks of all jobs."""
    order: Literal["as_finished", "fixed"] = "as_finished"
    """Results that a proposal uses. as_finished: all available results, whose list is recorded; fixed: the results of
    all earlier trainings except the last `parallel` - 1, so that repeated searches are equal."""
    seed: int = Field(0, ge=0)
    """Seed of the proposals; trainings use the first of `seeds`."""
    folds: FoldsConfig = FoldsConfig()
    """Cross-validation of each trial."""
    objective: ObjectiveConfig = ObjectiveConfig()
    """Metric by which trials are compared."""
    choose: Annotated[Literal["first", "knee"], EditEffect.SEARCH_END] = "first"
    """Trial of the Pareto front that is the best one, with several objectives. first: that with the best value of the first
    objective; knee: that nearest to the best values of all, each scaled to the range of the front."""
    fidelity: FidelityConfig = FullFidelityConfig()
    """Number of epochs of a trial."""
    budget: Annotated[BudgetConfig, EditEffect.SEARCH_END] = BudgetConfig()
    """Limits after which no further training starts."""
    blocks: Annotated[MpiPoolConfig, EditEffect.SEARCH_END] = MpiPoolConfig()
    """Division of one MPI allocation into rank groups."""

    @model_validator(mode="after")
    def _population_alone(self) -> Self:
        if isinstance(self.fidelity, PopulationConfig):
            if self.trials is not None:
                raise_config_error("pbt has a number of its own; set `search.fidelity.population`", "trials")
            if self.folds.prune is not None:
                raise_config_error(
                    "pbt compares trials with all their folds; remove this key", "folds", "prune"
                )
        return self

    @property
    def objectives(self) -> tuple[DirectedMetricConfig, ...]:
        """All objectives, the first one first."""
        return (self.objective, *(self.objective.others or ()))

    @model_validator(mode="after")
    def _fits_objectives(self) -> Self:
        metrics, last = [each.metric for each in self.objectives], self.objective.epoch == "last"
        several, single = len(metrics) > 1, "compares a single objective"
        twice = several and len(set(metrics)) < len(metrics)
        early = several and not last and metrics[0] in ("seconds", "parameters")
        differ = "measured seconds differ between equal searches; set as_finished, or remove this objective"
        for refused, key, reason in (
            (self.order == "fixed" and "seconds" in metrics, "order", differ),
            (not several and self.choose == "knee", "choose", "requires several objectives; remove this key"),
            (twice, "objective.others", "a metric occurs twice; remove one of them"),
            (early, "objective.epoch", f"the first epoch has the best {metrics[0]}; set last, or write another metric first"),
            (several and self.folds.prune is not None, "folds.prune", f"{single}; remove this key"),
            (several and self.known is not None, "known", f"{single}: a table has the values of one; remove this key"),
            (several and self.fidelity.name in ("median", "pbt"), "fidelity.name", f"{single}; set asha, hyperband or full"),
        ):  # fmt: skip
            if refused:
                raise_config_error(reason, *key.split("."))
        return self

    @property
    def trial_limit(self) -> int | None:
        """Number of trials after which no trial starts; None: a grid ends with its last point, a population after its epochs."""
        if isinstance(self.fidelity, PopulationConfig):
            return None
        if self.trials is None and isinstance(self.method, GridSamplerConfig):
            return None
        return self.trials or DEFAULT_TRIALS
