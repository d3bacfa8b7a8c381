"""Checks that watched metrics are measured."""

from collections.abc import Iterator
from typing import Any

from nnlo_lib.config.base import suggest_name


def watched_metric_faults(run: Any) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield (message, key) for each watched metric that a run (config.Run) does not measure."""
    for key, metric in run.train.watched.items():
        name = metric.partition("_")[2]
        if name not in run.measured:
            also = "; or add it to `metrics`" if name not in ("", "loss") else ""
            yield f"'{metric}' is not measured; {suggest_name(name, run.measured)}{also}", ("train", key)


def unvalidated_metrics(run: Any) -> Iterator[tuple[str, str]]:
    """Yield (key, metric) for each watched validation metric of a run (config.Run) without validation samples."""
    if run.data.validation == 0:
        yield from ((key, metric) for key, metric in run.train.watched.items() if metric.startswith("val_"))
