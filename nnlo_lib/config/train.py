"""Settings of the training of a replica."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from nnlo_lib.config.base import ConfigModel, EditEffect, raise_config_error
from nnlo_lib.config.optimizer import AdamConfig, OptimizerConfig
from nnlo_lib.config.schedule import (
    ConstantScheduleConfig,
    OneCycleScheduleConfig,
    PlateauScheduleConfig,
    ScheduleConfig,
    WarmUpConfig,
)
from nnlo_lib.config.stopping import EarlyStoppingConfig, Metric, TargetMetricConfig, WatchedMetricConfig

LR_SCALING_EXPONENTS = {"none": 0.0, "linear": 1.0, "sqrt": 0.5}


class EmaConfig(ConfigModel):
    """Exponential moving average of the weights: average <- decay average + (1 - decay) weights."""

    decay: float = Field(0.999, gt=0, lt=1)
    """Decay of a step; in step t at most (1 + t) / (10 + t), so that the first weights are soon forgotten."""


class TrainConfig(ConfigModel):
    """Length, optimizer, precision and stopping of a training."""

    epochs: Annotated[int, EditEffect.RESUME] = Field(10, ge=1)
    """Passes over the training samples."""
    steps_per_epoch: int | None = Field(None, ge=1)
    """Number of steps of an epoch; null: until every sample has been used once."""
    batch_size: int = Field(32, ge=1)
    """Samples per step and worker; the ranks of a worker divide them."""
    dealing: Literal["static", "dynamic"] = "static"
    """Assignment of batches to workers. static: in advance, the same number for each worker; dynamic: an idle worker
    takes the next batch of the epoch, so that fast workers process more batches (only for asynchronous algorithms)."""
    accumulate: int = Field(1, ge=1)
    """Number of parts of a batch, computed one after another to save memory; their gradients are added up. Batch
    normalization uses the samples of one part."""
    clip_norm: float | None = Field(None, gt=0)
    """Maximum Euclidean norm, over all parameters, of the gradient passed to the optimizer; null: no limit."""
    precision: Literal["float32", "float64", "bf16", "fp16"] = "float32"
    """Number format of the model and of exchanged vectors. bf16, fp16: float32, with forward passes and losses in mixed
    precision (fp16 with dynamic loss scaling)."""
    compile: bool | Literal["cuda_graph"] = False
    """true: compile the model by torch.compile; the first steps are slow. cuda_graph: record the passes of a step once
    and let the GPU repeat them, which makes small models faster; the model must do the same in each step."""
    deterministic: bool = True
    """Use kernels on GPUs that give the same bits in each run; false: those that are fastest."""
    channels_last: bool = True
    """Store images in memory format channels last, which makes convolutions faster."""
    # Adam learns at very different scales of inputs and targets; SGD needs a rate for each of them.
    optimizer: OptimizerConfig = AdamConfig(lr=0.003)
    """Update rule of the weights."""
    schedule: ScheduleConfig = ConstantScheduleConfig()
    """Learning-rate schedule over the rounds (a round is one step, or several local steps of some algorithms)."""
    warm_up: WarmUpConfig | None = Field(None, examples=[{"epochs": 5}])
    """Increase the learning rate to the schedule's rate in the first steps; null: no warm-up."""
    ema: EmaConfig | None = Field(None, examples=[{"decay": 0.999}])
    """Exponential moving average of the weights after each step, which is evaluated and published in place of the last weights
    (only for algorithms whose ranks share each gradient: allreduce); null: none."""
    scale_lr: Literal["none", "linear", "sqrt"] = "none"
    """Scaling of the optimizer's `lr`. linear: by the number of workers (Goyal et al. 2017); sqrt: by its square root.
    The `final` rate of a schedule is not scaled. Not for individual."""
    early_stopping: EarlyStoppingConfig | None = Field(
        None, examples=[{"metric": "val_loss", "patience": 10}]
    )
    """End the training if a metric stops improving; "val_loss,~<,4" is also accepted; null: never."""
    target: TargetMetricConfig | None = Field(None, examples=[{"metric": "val_accuracy", "value": 0.97}])
    """End the training when a metric passes a value; "val_acc,>,0.97" is also accepted; null: never."""
    restore_best: Metric | WatchedMetricConfig | None = Field(
        None, examples=["val_loss", {"metric": "val_f1", "better": "larger"}]
    )
    """Metric by which the best weights are chosen for publication, or a section with the metric and its better
    direction; null: publish the weights of the last step."""
    validate_every: int | None = Field(None, ge=1)
    """Steps of a worker between additional validations within an epoch, for which all replicas wait; null: validate
    only at the end of epochs."""
    evaluate_before: bool = False
    """Also validate before the first step."""

    def scaled_lr(self, workers: int) -> float:
        """Return the optimizer's learning rate scaled for the number of workers."""
        return float(self.optimizer.lr * workers ** LR_SCALING_EXPONENTS[self.scale_lr])

    @property
    def watched(self) -> dict[str, str]:
        """Metrics that control learning rate, stopping and published weights, by key."""
        rules = {"early_stopping": self.early_stopping, "target": self.target, "restore_best": self.best_rule}
        metrics = {key: rule.metric for key, rule in rules.items() if rule}
        if isinstance(self.schedule, PlateauScheduleConfig):
            metrics["schedule"] = self.schedule.metric
        return metrics

    @property
    def best_rule(self) -> WatchedMetricConfig | None:
        """Metric and better direction of `restore_best`; None: the weights of the last step are published."""
        best = self.restore_best
        return WatchedMetricConfig(metric=best) if isinstance(best, str) else best

    @model_validator(mode="after")
    def _one_warm_up(self) -> Self:
        if self.warm_up and isinstance(self.schedule, OneCycleScheduleConfig):
            raise_config_error(
                "cannot be combined with one_cycle, which includes a warm-up (`rise`); remove `train.warm_up`",
                "warm_up",
            )
        return self
