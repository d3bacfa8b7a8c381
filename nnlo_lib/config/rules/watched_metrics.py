"""Whether what decides about a training is measured in it."""

from collections.abc import Iterator
from typing import Any

from nnlo_lib.config.base import suggest_name


def watched_metric_faults(run: Any) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield why a run (config.Run) cannot be, and the key to point at."""
    for key, metric in run.train.watched.items():
        name = metric.partition("_")[2]
        if name not in run.measured:
            also = "; metrics says what is measured" if name not in ("", "loss") else ""
            yield f"{metric} is not measured; {suggest_name(name, run.measured)}{also}", ("train", key)


def unvalidated_metrics(run: Any) -> Iterator[tuple[str, str]]:
    """Yield what watches validations, (key, metric), in a run without folds that holds no samples back for them."""
    if run.data.validation == 0:
        yield from ((key, metric) for key, metric in run.train.watched.items() if metric.startswith("val_"))
