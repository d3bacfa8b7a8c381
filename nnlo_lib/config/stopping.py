"""Settings of the rules that end a training before its last epoch."""

import re
from typing import Annotated, Any, Literal, NoReturn, Self

from pydantic import AfterValidator, Field, model_validator

from nnlo_lib.config.base import ConfigModel, raise_config_error
from nnlo_lib.config.metrics import check_accuracy_range, metric_direction


def _of_a_split(metric: str) -> str:
    if not metric.startswith(("train_", "val_")):
        raise_config_error(f"'{metric}' is not a column of the history; use train_{metric} or val_{metric}")
    return metric


def _of_validation(metric: str) -> str:
    return f"val_{metric.removeprefix('val_')}"


Metric = Annotated[
    str, AfterValidator(_of_a_split), Field(examples=["val_loss", "train_loss", "val_accuracy"])
]
BetterDirection = Literal["smaller", "larger"]
METRIC_ALIASES = {"acc": "accuracy", "top_5_accuracy": "top5_accuracy"}  # names in Keras and NNLO
SIGN_DIRECTIONS: dict[str, BetterDirection] = {"<": "smaller", ">": "larger"}
NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"


def better_direction(metric: str) -> BetterDirection:
    """Return the direction in which a metric improves, derived from its name; `smaller` if the name says nothing."""
    return metric_direction(metric) or "smaller"


class WatchedMetricConfig(ConfigModel):
    """A watched metric and the direction in which it improves."""

    metric: Metric = "val_loss"
    """Watched metric: a column of the history."""
    better: BetterDirection | None = None
    """Whether smaller or larger values are better; null: derived from the name of the metric."""

    @property
    def larger_is_better(self) -> bool:
        """True if larger values are better."""
        return (self.better or better_direction(self.metric)) == "larger"


class BestCheckpointConfig(WatchedMetricConfig):
    """The validation metric by which the best checkpoint is kept, and the direction in which it improves."""

    metric: Annotated[str, AfterValidator(_of_validation)] = Field("val_loss", examples=["val_loss"])
    """Validation metric, with or without `val_`."""


class EarlyStoppingConfig(WatchedMetricConfig):
    """End the training if a metric stops improving.

    NNLO's form `"val_loss,~<,4"` (metric, better direction, patience) is also accepted. Plain: the last
    `patience` validations did not improve the best value. Smoothed (`~`): the mean of the last `patience`
    values is worse than the mean of the `patience` values before them.
    """

    patience: int = Field(10, ge=1)
    """Number of validations without improvement."""
    min_delta: float = Field(0.0, ge=0)
    """Minimum difference that counts as an improvement (smoothed: as a deterioration of the mean)."""
    smoothed: bool = False
    """Compare means of `patience` validations, like `~` in NNLO."""

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        metric, smoothed, sign, patience = _parsed(value, r"[1-9]\d*", "val_loss,~<,4")
        return {
            "metric": metric,
            "smoothed": bool(smoothed),
            "better": SIGN_DIRECTIONS[sign],
            "patience": int(patience),
        }


class TargetMetricConfig(WatchedMetricConfig):
    """End the training when a metric passes a value; NNLO's form `"val_acc,>,0.97"` is also accepted."""

    metric: Metric = "val_accuracy"
    """Watched metric: a column of the history."""
    value: float = Field(examples=[0.97])
    """Value that the metric must pass."""

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        metric, smoothed, sign, number = _parsed(value, NUMBER, "val_acc,>,0.97")
        if smoothed:
            _raise_unreadable(value, "val_acc,>,0.97")
        return {"metric": metric, "better": SIGN_DIRECTIONS[sign], "value": number}

    @model_validator(mode="after")
    def _within_range(self) -> Self:
        check_accuracy_range(self.metric, self.value, "value")
        return self


def _parsed(text: str, number: str, example: str) -> tuple[str, str, str, str]:
    found = re.fullmatch(rf"\s*(train_|val_)?(\w+)\s*,\s*(~?)([<>])\s*,\s*({number})\s*", text)
    if not found:
        _raise_unreadable(text, example)
    split, metric, smoothed, sign, last = found.groups()
    # Keras, and so NNLO, name the metrics of the training without a prefix.
    return f"{split or 'train_'}{METRIC_ALIASES.get(metric, metric)}", smoothed, sign, last


def _raise_unreadable(text: str, example: str) -> NoReturn:
    raise_config_error(f"cannot parse '{text}'; write a metric, a sign and a number, such as \"{example}\"")
