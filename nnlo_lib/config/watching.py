"""Whether what decides about a training is measured in it."""

from collections.abc import Iterator
from typing import Any

from nnlo_lib.config.strict import nearest


def watching_faults(run: Any) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield why a run (config.Run) cannot be, and the key to point at."""
    for key, metric in run.train.watched.items():
        name = metric.partition("_")[2]
        if name not in run.measured:
            also = "; metrics says what is measured" if name not in ("", "loss") else ""
            yield f"{metric} is not measured; {nearest(name, run.measured)}{also}", ("train", key)
