"""Names of losses and metrics, and which problem has which; nothing here imports torch."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationInfo

from nnlo_lib.config.base import is_missing_file, raise_config_error, suggest_name

Loss = str | dict[str, str]  # of the model, or of each of its outputs by name or place

# the first is the problem's own
LOSSES = {
    "classification": ("cross_entropy", "nll", "binary_cross_entropy", "hinge", "mse", "mae"),
    "regression": ("mse", "mae", "huber", "binary_cross_entropy"),
    "gan": ("wasserstein", "least_squares", "non_saturating"),
}
METRICS = {
    "classification": ("accuracy", "top5_accuracy", "binary_accuracy", *LOSSES["classification"]),
    "regression": ("mae", "mse", "huber", "binary_cross_entropy", "binary_accuracy"),
    "gan": ("distance", "critic_loss", "generator_loss"),
}
DEFAULT_METRICS = {
    "classification": ("accuracy",),
    "regression": ("mae",),
    "gan": METRICS["gan"],
}  # metrics of who names none
TOP_K_ACCURACY_PATTERN = re.compile(r"top([1-9]\d*)_accuracy")
METRIC_PATTERN_SCHEMA = {
    "pattern": r"^top[1-9]\d*_accuracy$|@",
    "description": "`topK_accuracy` or `name@output`",
}
USER_FUNCTION_SCHEMA = {"pattern": r"\.py:\w+$", "description": "`path.py:function`"}


def names_schema(names: Mapping[str, tuple[str, ...]], *more: dict[str, str]) -> dict[str, Any]:
    """Return what JSON schema shall say of a name: one of any problem's, a user's function, or of another pattern."""
    return {
        "anyOf": [
            {"enum": sorted({name for each in names.values() for name in each})},
            USER_FUNCTION_SCHEMA,
            *more,
        ]
    }


def metrics_schema(schema: dict[str, Any]) -> None:
    """Let the editor know the metrics' names, and that null is none."""
    listed = {"type": schema.pop("type"), "items": names_schema(METRICS, METRIC_PATTERN_SCHEMA)}
    schema.pop("items")
    schema["anyOf"] = [listed, {"type": "null"}]


def metric_column(metric: str) -> str:
    """Return what a metric is called in tables: `mine.py:rank@1` is 1_rank."""
    name, _, output = metric.partition("@")
    name = name.rpartition(":")[2]
    return f"{output}_{name}" if output else name


def refuse_unknown_loss(problem: str, loss: Loss, weights: Iterable[str], info: ValidationInfo) -> None:
    """Refuse losses that a problem does not have, and weights of outputs that have no loss."""
    several = isinstance(loss, dict)
    named = loss.items() if isinstance(loss, dict) else [("", loss)]
    if not named:
        raise_config_error("names no output; write {output: loss}, or one loss for all", "loss")
    for output, name in named:
        _refuse_unknown(problem, name, LOSSES, info, "loss", *([output] if output else []))
    for output in weights:
        if isinstance(loss, str) and ".py:" in loss:
            raise_config_error("a function of all outputs weighs them itself; leave it out", "loss_weights")
        if several and output not in loss:
            raise_config_error(
                f"weighs output '{output}', which has no loss; {suggest_name(output, loss)}", "loss_weights"
            )


def refuse_unknown_metrics(problem: str, metrics: tuple[str, ...], info: ValidationInfo) -> None:
    """Refuse metrics that a problem does not have, and two of one name."""
    for place, metric in enumerate(metrics):
        name = metric.partition("@")[0]
        if not (TOP_K_ACCURACY_PATTERN.fullmatch(name) and problem == "classification"):
            _refuse_unknown(problem, name, METRICS, info, "metrics", str(place))
    columns = [metric_column(metric) for metric in metrics]
    for name in columns:
        if columns.count(name) > 1 or name == "loss":
            raise_config_error(f"two of what is measured are called {name}", "metrics")


def _refuse_unknown(
    problem: str, name: str, known: Mapping[str, tuple[str, ...]], info: ValidationInfo, *at: str
) -> None:
    path, colon, _ = name.rpartition(":")
    if colon and path.endswith(".py"):
        if is_missing_file(path, info):
            raise_config_error(f"the file '{path}' does not exist (paths start where you run nnlo)", *at)
    elif name not in known[problem]:
        elsewhere = " or ".join(other for other, names in known.items() if name in names)
        hint = suggest_name(name, known[problem]) if known[problem] else "it has none"
        if elsewhere:
            raise_config_error(f"'{name}' is for problem: {elsewhere}; {problem}: {hint}", *at)
        raise_config_error(f"unknown name '{name}'; {hint}, or path/to/file.py:function", *at)
