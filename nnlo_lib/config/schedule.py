"""Settings of learning-rate schedules and of warm-up."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from nnlo_lib.config.base import ConfigModel, Requires, raise_config_error
from nnlo_lib.config.stopping import WatchedMetricConfig

Unit = Annotated[
    Literal["epochs", "steps"],
    Field(
        description="Unit of counting: epochs, which do not depend on the number of ranks, or steps of a worker (with "
        "dynamic dealing, the mean over workers)."
    ),
]
Factor = Annotated[float, Field(gt=0, le=1, description="Factor on the learning rate.")]
Final = Annotated[float, Field(ge=0, description="Learning rate of the last round.")]


class BaseScheduleConfig(ConfigModel):
    """Settings of a learning-rate schedule."""

    @property
    def depends_on_epochs(self) -> bool:
        """True if the schedule is stretched over `train.epochs`, so that more epochs change it."""
        return False


class FixedLengthScheduleConfig(BaseScheduleConfig):
    """A schedule that is stretched from the first round to the last."""

    @property
    def depends_on_epochs(self) -> bool:
        """True: the schedule ends in the last round."""
        return True


class ConstantScheduleConfig(BaseScheduleConfig):
    """The optimizer's `lr` in every round."""

    name: Literal["constant"] = "constant"


class LinearScheduleConfig(FixedLengthScheduleConfig):
    """From the optimizer's `lr` in the first round to `final` in the last, in equal steps."""

    name: Literal["linear"] = "linear"
    final: float = Field(gt=0, examples=[0.0001])
    """Learning rate of the last round."""


class LogScheduleConfig(FixedLengthScheduleConfig):
    """From the optimizer's `lr` in the first round to `final` in the last, by equal factors."""

    name: Literal["log"] = "log"
    final: float = Field(gt=0, examples=[0.0001])
    """Learning rate of the last round."""


class DiminishingScheduleConfig(BaseScheduleConfig):
    """lr <- lr (1 - mu lr) after each round (Di Lorenzo and Scutari 2016; DiNNO's DSGD)."""

    name: Literal["diminishing"] = "diminishing"
    mu: float = Field(gt=0, examples=[0.001])
    """Speed of the decrease."""


class StepScheduleConfig(BaseScheduleConfig):
    """lr <- factor lr after every `every` epochs or steps."""

    name: Literal["step"] = "step"
    every: int = Field(ge=1, examples=[30])
    """Number of epochs or steps between two changes."""
    factor: Factor = 0.1
    unit: Unit = "epochs"
    min_lr: float = Field(0.0, ge=0)
    """Minimum learning rate."""


class MultiStepScheduleConfig(BaseScheduleConfig):
    """lr <- factor lr at each milestone (He et al. 2016)."""

    name: Literal["multi_step"] = "multi_step"
    milestones: tuple[Annotated[int, Field(ge=1)], ...] = Field(min_length=1, examples=[[30, 60, 80]])
    """Epochs or steps after which the learning rate changes."""
    factor: Factor = 0.1
    unit: Unit = "epochs"

    @model_validator(mode="after")
    def _milestones_rise(self) -> Self:
        if any(one >= other for one, other in zip(self.milestones, self.milestones[1:], strict=False)):
            raise_config_error(
                "the milestones are not in increasing order; sort them and remove duplicates", "milestones"
            )
        return self


class ExponentialScheduleConfig(BaseScheduleConfig):
    """lr <- factor lr after every epoch or step."""

    name: Literal["exponential"] = "exponential"
    factor: Factor = 0.95
    unit: Unit = "epochs"


class CosineScheduleConfig(BaseScheduleConfig):
    """Half a cosine from `lr` to `final`, over the training or over each period (Loshchilov and Hutter 2017)."""

    name: Literal["cosine"] = "cosine"
    final: Final = 0.0
    restart: int | None = Field(None, ge=1)
    """Epochs or steps of the first period, after which the learning rate returns to `lr`; null: one period."""
    stretch: Annotated[int, Requires("restart")] = Field(1, ge=1)
    """Factor by which each period is longer than the previous one."""
    unit: Annotated[Unit, Requires("restart")] = "epochs"

    @property
    def depends_on_epochs(self) -> bool:
        """True if the schedule has no restarts."""
        return self.restart is None


class PolynomialScheduleConfig(FixedLengthScheduleConfig):
    """final + (lr - final) (1 - t)^power, t from 0 in the first round to 1 in the last."""

    name: Literal["polynomial"] = "polynomial"
    power: float = Field(2.0, gt=0)
    """Exponent; 1: linear."""
    final: Final = 0.0


class OneCycleScheduleConfig(FixedLengthScheduleConfig):
    """Rise to `lr` and fall to almost zero, along cosines; the momentum is constant (Smith 2018)."""

    name: Literal["one_cycle"] = "one_cycle"
    rise: float = Field(0.3, gt=0, lt=1)
    """Fraction of the rounds in which the learning rate rises."""
    start: float = Field(0.04, gt=0, le=1)
    """Learning rate of the first round, as a fraction of `lr`."""
    final: float = Field(4e-6, ge=0, le=1)
    """Learning rate of the last round, as a fraction of `lr`."""


class PlateauScheduleConfig(WatchedMetricConfig, BaseScheduleConfig):
    """lr <- factor lr if a metric has not improved for `patience` epochs (ReduceLROnPlateau of Keras and PyDTNN)."""

    name: Literal["plateau"] = "plateau"
    factor: float = Field(0.1, gt=0, lt=1)
    """Factor on the learning rate."""
    patience: int = Field(10, ge=1)
    """Epochs without improvement after which the learning rate falls."""
    min_delta: float = Field(0.0, ge=0)
    """Minimum difference to the best value that counts as an improvement."""
    cooldown: int = Field(0, ge=0)
    """Epochs after a change that do not count for `patience`."""
    min_lr: float = Field(0.0, ge=0)
    """Minimum learning rate."""


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
    """Linear increase from a fraction of the schedule's learning rate (Goyal et al. 2017, arXiv:1706.02677)."""

    steps: int | None = Field(None, ge=1, examples=[500])
    """Length in steps of a worker; null: set by `epochs`."""
    epochs: float | None = Field(None, gt=0)
    """Length in epochs; null: set by `steps`."""
    start: float = Field(0.1, ge=0, le=1)
    """Fraction in the first step (1 / workers in Goyal et al. and PyDTNN)."""

    @model_validator(mode="after")
    def _one_length(self) -> Self:
        if (self.steps is None) == (self.epochs is None):
            raise_config_error(
                "set either `train.warm_up.steps` or `train.warm_up.epochs`, not both", "steps"
            )
        return self
