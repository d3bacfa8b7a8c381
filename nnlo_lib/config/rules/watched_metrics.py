"""Checks that watched metrics are measured."""

from collections.abc import Iterator
from typing import Any

from nnlo_lib.config.base import ConfigFault, suggest_name
from nnlo_lib.config.metrics import metric_direction

# Keys that are usually a name, which has no place for the direction.
_SECTIONS = {
    "train.restore_best": "set train.restore_best: {{metric: {}, better: larger}}, or smaller",
    "checkpoint.best": "set checkpoint.best: {{metric: {}, better: larger}}, or smaller",
}


def watched_metric_faults(run: Any) -> Iterator[ConfigFault]:
    """Yield a fault for each watched metric that a run (config.Run) does not measure."""
    for key, metric in run.train.watched.items():
        name = metric.partition("_")[2]
        if name not in run.measured:
            also = "; or add it to `metrics`" if name not in ("", "loss") else ""
            yield ConfigFault(
                f"'{metric}' is not measured; {suggest_name(name, run.measured)}{also}", ("train", key)
            )
        elif metric_direction(metric) is None and not getattr(getattr(run.train, key), "better", None):
            yield ConfigFault(_unknown_direction(metric, f"train.{key}"), ("train", key))
    best = run.checkpoint.best_rule
    if best and not best.better and metric_direction(best.metric) is None:
        yield ConfigFault(_unknown_direction(best.metric, "checkpoint.best"), ("checkpoint", "best"))


def _unknown_direction(metric: str, key: str) -> str:
    remedy = _SECTIONS.get(key, f"set {key}.better").format(metric)
    return f"'{metric}': its name does not say whether smaller or larger values are better; {remedy}"


def unvalidated_metrics(run: Any) -> Iterator[tuple[str, str]]:
    """Yield (key, metric) for each watched validation metric of a run (config.Run) without validation samples."""
    if run.data.validation == 0:
        yield from ((key, metric) for key, metric in run.train.watched.items() if metric.startswith("val_"))
