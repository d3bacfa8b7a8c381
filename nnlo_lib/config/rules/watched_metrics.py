"""Checks that watched metrics are measured."""

from collections.abc import Iterator
from typing import Any

from nnlo_lib.config.base import suggest_name
from nnlo_lib.config.metrics import metric_direction

_RENAME = (
    "give the function a name that ends with accuracy or score (larger), or with error or loss (smaller)"
)
_REMEDIES = {"restore_best": _RENAME}  # keys without a setting for the direction


def watched_metric_faults(run: Any) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield (message, key) for each watched metric that a run (config.Run) does not measure."""
    for key, metric in run.train.watched.items():
        name = metric.partition("_")[2]
        if name not in run.measured:
            also = "; or add it to `metrics`" if name not in ("", "loss") else ""
            yield f"'{metric}' is not measured; {suggest_name(name, run.measured)}{also}", ("train", key)
        elif metric_direction(metric) is None and not getattr(getattr(run.train, key), "better", None):
            yield (
                f"{unknown_direction(metric)}{_REMEDIES.get(key, f'set train.{key}.better')}",
                ("train", key),
            )
    if (best := run.checkpoint.best) and metric_direction(best) is None:
        yield f"{unknown_direction(best)}{_RENAME}", ("checkpoint", "best")


def unknown_direction(metric: str) -> str:
    """Return the start of a message on a user's metric that is watched."""
    return f"'{metric}': its name does not say whether smaller or larger values are better; "


def unvalidated_metrics(run: Any) -> Iterator[tuple[str, str]]:
    """Yield (key, metric) for each watched validation metric of a run (config.Run) without validation samples."""
    if run.data.validation == 0:
        yield from ((key, metric) for key, metric in run.train.watched.items() if metric.startswith("val_"))
