"""Names of the losses and metrics of each problem; this module does not import torch."""

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ValidationInfo

from nnlo_lib.config.base import UserPath, raise_config_error, refuse_missing_file, suggest_name

Metric = Annotated[UserPath, BeforeValidator(lambda name: SYNONYMS.get(str(name), name))]
Loss = UserPath | dict[str, UserPath]  # one loss, or one for each output by its name or index

# The first loss of a problem is its default.
LOSSES = {
    "classification": ("cross_entropy", "nll", "binary_cross_entropy", "hinge", "mse", "mae"),
    "regression": ("mse", "mae", "huber", "binary_cross_entropy"),
    "dense_classification": ("cross_entropy",),
    "gan": ("wasserstein", "least_squares", "non_saturating"),
}
ACCURACIES = ("accuracy", "balanced_accuracy", "top5_accuracy", "binary_accuracy")
METRICS = {
    "classification": (*ACCURACIES, *LOSSES["classification"]),
    "regression": ("mae", "mse", "huber", "binary_cross_entropy", "binary_accuracy"),
    "dense_classification": ("accuracy", "balanced_accuracy", "cross_entropy", "perplexity", "iou", "dice"),
    "gan": ("distance", "critic_loss", "generator_loss", "loss_gap"),
}
# Metrics of all samples together, which only the evaluation after a training measures.
SET_METRICS = {
    "classification": ("f1", "roc_auc", "average_precision", "calibration_error"),
    "regression": ("r2",),
}
# Names in other libraries; settings have NNLO's.
SYNONYMS = {"auc": "roc_auc", "auroc": "roc_auc", "f1_score": "f1", "f1_macro": "f1", "r2_score": "r2"}
SET_PREFIX = "set:"  # of a user's function of all samples together
# Metrics of a run that does not set `metrics`.
DEFAULT_METRICS = {
    "classification": ("accuracy",),
    "regression": ("mae",),
    "dense_classification": ("accuracy",),
    "gan": ("distance", "critic_loss", "generator_loss"),
}
TOP_K_ACCURACY_PATTERN = re.compile(r"top([1-9]\d*)_accuracy")
# Accuracies of nnlo; a user's metric may have another range.
ACCURACY_COLUMN = re.compile(r"(?:train_|val_)?(?:balanced_|binary_|top\d+_)?accuracy(?:_min|_max|_mean)?")
LARGER_IS_BETTER_SUFFIXES = ("accuracy", "r2", "score")
LARGER_IS_BETTER_NAMES = ("iou", "dice", "f1", "roc_auc", "average_precision")
SMALLER_IS_BETTER_SUFFIXES = ("loss", "error")
NODE_SUFFIXES = ("_min", "_max", "_mean")  # of metrics over nodes with models of their own
METRIC_PATTERN_SCHEMA = {
    "pattern": r"^top[1-9]\d*_accuracy$|@|^set:",
    "description": "`topK_accuracy`, `name@output` or `set:path.py:function`",
}
USER_FUNCTION_SCHEMA = {"pattern": r"\.py:\w+$", "description": "`path.py:function`"}


def names_schema(names: Mapping[str, tuple[str, ...]], *more: dict[str, str]) -> dict[str, Any]:
    """Return the JSON schema of a loss or metric: a known name, a user's function, or one of the patterns in `more`."""
    return {
        "anyOf": [
            {"enum": sorted({name for each in names.values() for name in each})},
            USER_FUNCTION_SCHEMA,
            *more,
        ]
    }


def metrics_schema(schema: dict[str, Any]) -> None:
    """Add the names of metrics, and null, to the JSON schema of the key `metrics`."""
    known = {problem: names + SET_METRICS.get(problem, ()) for problem, names in METRICS.items()}
    known["synonyms"] = tuple(SYNONYMS)
    listed = {"type": schema.pop("type"), "items": names_schema(known, METRIC_PATTERN_SCHEMA)}
    schema.pop("items")
    schema["anyOf"] = [listed, {"type": "null"}]


def check_accuracy_range(column: str, value: float | None, key: str) -> None:
    """Raise a validation error for `key` if a column is an accuracy of nnlo, and a value for it is not between 0 and 1."""
    if value is None or not ACCURACY_COLUMN.fullmatch(column) or 0 <= value <= 1:
        return
    per_cent = f" for {value:g} %" if 1 < value <= 100 else ""
    fraction = f"{value / 100:g}" if per_cent else "a fraction"
    raise_config_error(f"{column} is between 0 and 1, got {value:g}; write {fraction}{per_cent}", key)


def metric_direction(column: str) -> Literal["smaller", "larger"] | None:
    """Return the direction in which a metric improves, by the name of its column; None if the name does not say it."""
    name = column.removeprefix("val_").removeprefix("train_")
    for suffix in NODE_SUFFIXES:
        name = name.removesuffix(suffix)
    if name.endswith(LARGER_IS_BETTER_SUFFIXES) or name in LARGER_IS_BETTER_NAMES:
        return "larger"
    if name.endswith(SMALLER_IS_BETTER_SUFFIXES):
        return "smaller"
    built_in = {each for names in METRICS.values() for each in names}
    # The metric of an output other than the first starts with the name of the output.
    return "smaller" if any(name == each or name.endswith(f"_{each}") for each in built_in) else None


def metric_column(metric: str) -> str:
    """Return the column name of a metric: `mine.py:rank@1` becomes `1_rank`."""
    name, _, output = metric.partition("@")
    name = name.rpartition(":")[2]
    return f"{output}_{name}" if output else name


def refuse_unknown_loss(problem: str, loss: Loss, weights: Iterable[str], info: ValidationInfo) -> None:
    """Raise a validation error for an unknown loss, or for an output in `weights` that has no loss."""
    named = loss.items() if isinstance(loss, dict) else [("", loss)]
    if not named:
        raise_config_error(
            "the mapping is empty; write `loss: {output: name}`, or one name for all outputs", "loss"
        )
    for output, name in named:
        _refuse_unknown(problem, name, LOSSES, info, "loss", *([output] if output else []))
    for output in weights:
        if isinstance(loss, str) and ".py:" in loss:
            raise_config_error(
                "not supported with a loss function of all outputs; weigh them in the function and remove `loss_weights`",
                "loss_weights",
            )
        # Outputs without a loss are not trained, so that their weight would have no effect.
        if isinstance(loss, dict) and output not in loss:
            raise_config_error(f"output '{output}' has no loss; {suggest_name(output, loss)}", "loss_weights")


def set_metrics(problem: str, metrics: Iterable[str]) -> tuple[str, ...]:
    """Return those of the metrics that are of all samples together."""
    known = SET_METRICS.get(problem, ())
    return tuple(each for each in metrics if each.partition("@")[0] in known or each.startswith(SET_PREFIX))


def refuse_unknown_metrics(problem: str, metrics: tuple[str, ...], info: ValidationInfo) -> None:
    """Raise a validation error for an unknown metric, or for two metrics with the same column name."""
    known = {each: names + SET_METRICS.get(each, ()) for each, names in METRICS.items()}
    of_set = set_metrics(problem, metrics)
    for index, metric in enumerate(metrics):
        name, at, _ = metric.partition("@")
        if metric in of_set and (at or problem not in SET_METRICS):
            remedy = f"remove @{_}" if at else f"only {' and '.join(SET_METRICS)} have such metrics"
            raise_config_error(
                f"'{metric}' is of all samples together, of the first output; {remedy}", "metrics", str(index)
            )
        if not (TOP_K_ACCURACY_PATTERN.fullmatch(name) and problem == "classification"):
            _refuse_unknown(problem, name.removeprefix(SET_PREFIX), known, info, "metrics", str(index))
    columns = [metric_column(metric) for metric in metrics]
    for name in columns:
        # The history always has a column for the loss.
        if columns.count(name) > 1 or name == "loss":
            raise_config_error(
                f"two columns of the history would have the name '{name}'; remove or rename one of the metrics",
                "metrics",
            )


def _refuse_unknown(
    problem: str, name: str, known: Mapping[str, tuple[str, ...]], info: ValidationInfo, *at: str
) -> None:
    path, colon, _ = name.rpartition(":")
    if colon and path.endswith(".py"):
        refuse_missing_file(path, info, *at)
    elif name not in known[problem]:
        elsewhere = " or ".join(other for other, names in known.items() if name in names)
        hint = suggest_name(name, known[problem]) if known[problem] else "there are none"
        if elsewhere:
            raise_config_error(f"'{name}' is only available for {elsewhere}; for {problem}: {hint}", *at)
        raise_config_error(f"unknown name '{name}'; {hint}, or path/to/file.py:function", *at)
