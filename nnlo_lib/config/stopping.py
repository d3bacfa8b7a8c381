"""When a training ends before its last epoch."""

import re
from typing import Annotated, Any, Literal, NoReturn

from pydantic import AfterValidator, Field, model_validator

from nnlo_lib.config.base import ConfigModel, raise_config_error


def _of_a_split(metric: str) -> str:
    if not metric.startswith(("train_", "val_")):
        raise_config_error(f"'{metric}' is no column of the history; write train_{metric} or val_{metric}")
    return metric


Metric = Annotated[
    str, AfterValidator(_of_a_split), Field(examples=["val_loss", "train_loss", "val_accuracy"])
]
BetterDirection = Literal["smaller", "larger"]
METRIC_ALIASES = {"acc": "accuracy", "top_5_accuracy": "top5_accuracy"}  # as Keras and NNLO call them
SIGN_DIRECTIONS: dict[str, BetterDirection] = {"<": "smaller", ">": "larger"}
NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
LARGER_IS_BETTER_SUFFIXES = ("accuracy", "r2")  # ends of the names of metrics of which more is better


def better_direction(metric: str) -> BetterDirection:
    """Return which values of a metric are the better ones, by its name."""
    name = metric.removesuffix("_min").removesuffix("_max")  # over nodes
    return "larger" if name.endswith(LARGER_IS_BETTER_SUFFIXES) else "smaller"


class WatchedMetricConfig(ConfigModel):
    """What is watched, and which values of it are better."""

    metric: Metric = Field("val_loss", description="What is watched: a column of the history.")
    better: BetterDirection | None = Field(
        None, description="Which values are better; null: by the metric's name."
    )

    @property
    def larger_is_better(self) -> bool:
        """Whether larger values are better."""
        return (self.better or better_direction(self.metric)) == "larger"


class EarlyStoppingConfig(WatchedMetricConfig):
    """Stop when a metric gets no better; also as NNLO's text, `"val_loss,~<,4"`: metric, wanted direction, patience.

    Plain: `patience` validations in a row none of which was the best so far. Smoothed (`~`): the mean of the last
    `patience` values is worse than that of as many before them.
    """

    patience: int = Field(10, ge=1, description="Validations without a better one.")
    min_delta: float = Field(
        0.0, ge=0, description="By how much a value must be better than the best to count."
    )
    smoothed: bool = Field(False, description="Compare means of `patience` validations, as NNLO's `~` does.")

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
    """Stop as soon as a metric is good enough; also as NNLO's text, `"val_acc,>,0.97"`."""

    metric: Metric = Field("val_accuracy", description="What is watched: a column of the history.")
    value: float = Field(examples=[0.97], description="What it must pass.")

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        metric, smoothed, sign, number = _parsed(value, NUMBER, "val_acc,>,0.97")
        if smoothed:
            _misread(value, "val_acc,>,0.97")
        return {"metric": metric, "better": SIGN_DIRECTIONS[sign], "value": number}


def _parsed(text: str, number: str, example: str) -> tuple[str, str, str, str]:
    found = re.fullmatch(rf"\s*(train_|val_)?(\w+)\s*,\s*(~?)([<>])\s*,\s*({number})\s*", text)
    if not found:
        _misread(text, example)
    split, metric, smoothed, sign, last = found.groups()
    return f"{split or 'train_'}{METRIC_ALIASES.get(metric, metric)}", smoothed, sign, last


def _misread(text: str, example: str) -> NoReturn:
    raise_config_error(f"'{text}' is not read: it is a metric, a sign and a number, such as \"{example}\"")
