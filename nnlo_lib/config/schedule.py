"""How the learning rate changes from round to round."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from nnlo_lib.config.base import ConfigModel, raise_config_error
from nnlo_lib.config.stopping import BetterDirection, Metric, better_direction

Unit = Annotated[
    Literal["epochs", "steps"],
    Field(
        description="What is counted: epochs, which any number of ranks goes through alike, or a worker's steps."
    ),
]
Factor = Annotated[float, Field(gt=0, le=1, description="What the rate is multiplied by.")]
Final = Annotated[float, Field(ge=0, description="Learning rate of the last round.")]


class BaseScheduleConfig(ConfigModel):
    """What all schedules say of themselves."""

    @property
    def depends_on_epochs(self) -> bool:
        """Whether it runs to its end within `epochs`, so that more epochs are another schedule."""
        return False


class FixedLengthScheduleConfig(BaseScheduleConfig):
    """A schedule that runs from the first round to the last."""

    @property
    def depends_on_epochs(self) -> bool:
        """Always."""
        return True


class ConstantScheduleConfig(BaseScheduleConfig):
    """The same in every round."""

    name: Literal["constant"] = "constant"


class LinearScheduleConfig(FixedLengthScheduleConfig):
    """In equal steps from the optimizer's `lr` in the first round to `final` in the last."""

    name: Literal["linear"] = "linear"
    final: float = Field(gt=0, examples=[0.0001], description="Learning rate of the last round.")


class LogScheduleConfig(FixedLengthScheduleConfig):
    """In equal factors from the optimizer's `lr` in the first round to `final` in the last."""

    name: Literal["log"] = "log"
    final: float = Field(gt=0, examples=[0.0001], description="Learning rate of the last round.")


class DiminishingScheduleConfig(BaseScheduleConfig):
    """lr <- lr (1 - mu lr) from round to round (Di Lorenzo and Scutari 2016; DiNNO's DSGD)."""

    name: Literal["diminishing"] = "diminishing"
    mu: float = Field(gt=0, examples=[0.001], description="How fast it diminishes.")


class StepScheduleConfig(BaseScheduleConfig):
    """lr <- factor lr after every so many epochs or steps."""

    name: Literal["step"] = "step"
    every: int = Field(ge=1, examples=[30], description="Epochs, or steps, with the same rate.")
    factor: Factor = 0.1
    unit: Unit = "epochs"


class MultiStepScheduleConfig(BaseScheduleConfig):
    """lr <- factor lr at each milestone (He et al. 2016)."""

    name: Literal["multi_step"] = "multi_step"
    milestones: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        min_length=1, examples=[[30, 60, 80]], description="Epochs, or steps, after which the rate falls."
    )
    factor: Factor = 0.1
    unit: Unit = "epochs"

    @model_validator(mode="after")
    def _milestones_rise(self) -> Self:
        if any(one >= other for one, other in zip(self.milestones, self.milestones[1:], strict=False)):
            raise_config_error("milestones must rise", "milestones")
        return self


class ExponentialScheduleConfig(BaseScheduleConfig):
    """lr <- factor lr after every epoch or step."""

    name: Literal["exponential"] = "exponential"
    factor: Factor = 0.95
    unit: Unit = "epochs"


class CosineScheduleConfig(BaseScheduleConfig):
    """Along half a cosine from `lr` to `final`: over the training, or over each period (Loshchilov and Hutter 2017)."""

    name: Literal["cosine"] = "cosine"
    final: Final = 0.0
    restart: int | None = Field(
        None,
        ge=1,
        description="Epochs, or steps, of the first period, after which the rate jumps back to `lr`; null: never.",
    )
    stretch: int = Field(1, ge=1, description="How much longer each period is than the one before.")
    unit: Unit = "epochs"

    @model_validator(mode="after")
    def _stretch_needs_restart(self) -> Self:
        if self.stretch > 1 and self.restart is None:
            raise_config_error("stretch needs restart, the length of the first period", "stretch")
        return self

    @property
    def depends_on_epochs(self) -> bool:
        """Whether it never restarts."""
        return self.restart is None


class PolynomialScheduleConfig(FixedLengthScheduleConfig):
    """final + (lr - final) (1 - t)^power, t from 0 in the first round to 1 in the last."""

    name: Literal["polynomial"] = "polynomial"
    power: float = Field(2.0, gt=0, description="The power; 1: linear.")
    final: Final = 0.0


class OneCycleScheduleConfig(FixedLengthScheduleConfig):
    """Up from a fraction of `lr` to `lr` and down to next to nothing, along cosines (Smith 2018); momentum stays."""

    name: Literal["one_cycle"] = "one_cycle"
    rise: float = Field(0.3, gt=0, lt=1, description="Fraction of the rounds in which the rate rises.")
    start: float = Field(0.04, gt=0, le=1, description="Rate of the first round, as a fraction of `lr`.")
    final: float = Field(4e-6, ge=0, le=1, description="Rate of the last round, as a fraction of `lr`.")


class PlateauScheduleConfig(BaseScheduleConfig):
    """lr <- factor lr when a metric has got no better for `patience` epochs (Keras's and PyDTNN's ReduceLROnPlateau)."""

    name: Literal["plateau"] = "plateau"
    metric: Metric = Field("val_loss", description="What is watched: a column of the history.")
    factor: float = Field(0.1, gt=0, lt=1, description="What the rate is multiplied by.")
    patience: int = Field(10, ge=1, description="Epochs without a better one after which the rate falls.")
    min_delta: float = Field(
        0.0, ge=0, description="By how much a value must be better than the best to count."
    )
    cooldown: int = Field(0, ge=0, description="Epochs after a fall that do not count as waiting.")
    min_lr: float = Field(0.0, ge=0, description="The rate falls no further.")
    better: BetterDirection | None = Field(
        None, description="Which values are better; null: by the metric's name."
    )

    @property
    def larger_is_better(self) -> bool:
        """Whether larger values are better."""
        return (self.better or better_direction(self.metric)) == "larger"


ScheduleConfig = Annotated[
    ConstantScheduleConfig
    | LinearScheduleConfig
    | LogScheduleConfig
    | DiminishingScheduleConfig
    | StepScheduleConfig
    | MultiStepScheduleConfig
    | ExponentialScheduleConfig
    | CosineScheduleConfig
    | PolynomialScheduleConfig
    | OneCycleScheduleConfig
    | PlateauScheduleConfig,
    Field(discriminator="name"),
]


class WarmUpConfig(ConfigModel):
    """From a fraction of the schedule's rate to all of it, in equal steps (Goyal et al. 2017, arXiv:1706.02677)."""

    steps: int | None = Field(None, ge=1, examples=[500], description="How many steps of a worker.")
    epochs: float | None = Field(None, gt=0, description="Or how many epochs.")
    start: float = Field(
        0.1, ge=0, le=1, description="Fraction in the first step (Goyal et al. and PyDTNN: 1 / workers)."
    )

    @model_validator(mode="after")
    def _one_length(self) -> Self:
        if (self.steps is None) == (self.epochs is None):
            raise_config_error("say either steps or epochs", "steps")
        return self
