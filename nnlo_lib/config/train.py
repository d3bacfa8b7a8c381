"""How long and how fast one replica learns."""

from typing import Literal, Self

from pydantic import Field, model_validator

from nnlo_lib.config.base import ConfigModel, raise_config_error
from nnlo_lib.config.optimizer import OptimizerConfig, SGDConfig
from nnlo_lib.config.schedule import (
    ConstantScheduleConfig,
    OneCycleScheduleConfig,
    PlateauScheduleConfig,
    ScheduleConfig,
    WarmUpConfig,
)
from nnlo_lib.config.stopping import EarlyStoppingConfig, Metric, TargetMetricConfig


class TrainConfig(ConfigModel):
    """How long and how fast one replica learns."""

    epochs: int = Field(10, ge=1, description="Passes over the training samples.")
    steps_per_epoch: int | None = Field(
        None, ge=1, description="Ends an epoch after so many steps; null: when every sample was used once."
    )
    batch_size: int = Field(64, ge=1, description="Samples per step and worker.")
    dealing: Literal["static", "dynamic"] = Field(
        "static",
        description="Which worker takes which batch: the same number each, known beforehand, or the epoch's next one "
        "whenever a worker has time, so that none waits for a slower one (asynchronous algorithms).",
    )
    accumulate: int = Field(
        1,
        ge=1,
        description="Parts in which a batch is computed, one after another; their gradients add up to that of the whole "
        "batch (batch normalization sees the parts). Saves memory.",
    )
    clip_norm: float | None = Field(
        None,
        gt=0,
        description="Scales what the optimizer is given down to this Euclidean norm over all parameters; null: never.",
    )
    precision: Literal["float32", "float64", "bf16", "fp16"] = Field(
        "float32",
        description="Numbers of the model and of all that is exchanged. bf16, fp16: float32, but forward passes and "
        "losses in mixed precision (fp16 with dynamic loss scaling).",
    )
    compile: bool = Field(
        False, description="Compiles the model by torch.compile; the first steps take long."
    )
    channels_last: bool = Field(
        True, description="Lays images out channels last, which convolutions like best."
    )
    optimizer: OptimizerConfig = Field(
        SGDConfig(momentum=0.9),
        description="Update rule: sgd, adam, adamw, nadam, adamax, rmsprop, adadelta, adagrad, lars or lamb.",
    )
    schedule: ScheduleConfig = Field(
        ConstantScheduleConfig(),
        description="Learning rate from round to round (a round is a step, or what the algorithm calls one): "
        "constant, linear, log, diminishing, step, multi_step, exponential, cosine, polynomial, one_cycle or plateau.",
    )
    warm_up: WarmUpConfig | None = Field(
        None,
        description="Lets the learning rate rise to the schedule's in the first steps.",
        examples=[{"epochs": 5}],
    )
    scale_lr: Literal["none", "linear", "sqrt"] = Field(
        "none",
        description="Multiplies the optimizer's `lr` by the number of workers (Goyal et al. 2017) or by its root, as each "
        "step learns from so many batches. What a schedule calls its `final` stays.",
    )
    early_stopping: EarlyStoppingConfig | None = Field(
        None,
        description='Ends the training when a metric gets no better; also "val_loss,~<,4"; null: never.',
        examples=[{"metric": "val_loss", "patience": 10}],
    )
    target: TargetMetricConfig | None = Field(
        None,
        description='Ends the training when a metric is good enough; also "val_acc,>,0.97"; null: never.',
        examples=[{"metric": "val_accuracy", "value": 0.97}],
    )
    restore_best: Metric | None = Field(
        None,
        examples=["val_loss"],
        description="Publishes the weights that measured best by this; null: those of the last step.",
    )
    validate_every: int | None = Field(
        None,
        ge=1,
        description="Validates after so many steps of a worker, too, not only at the end of epochs. Replicas meet for it.",
    )
    evaluate_before: bool = Field(False, description="Validates before the first step, too.")

    @property
    def watched(self) -> dict[str, str]:
        """Metrics that decide how fast it learns, when it ends and what it publishes, by key."""
        rules = {"early_stopping": self.early_stopping, "target": self.target}
        metrics = {key: rule.metric for key, rule in rules.items() if rule}
        metrics |= (
            {"schedule": self.schedule.metric} if isinstance(self.schedule, PlateauScheduleConfig) else {}
        )
        return metrics | ({"restore_best": self.restore_best} if self.restore_best else {})

    @model_validator(mode="after")
    def _one_warm_up(self) -> Self:
        if self.warm_up and isinstance(self.schedule, OneCycleScheduleConfig):
            raise_config_error("one_cycle warms up by itself (its rise); leave warm_up out", "warm_up")
        return self
