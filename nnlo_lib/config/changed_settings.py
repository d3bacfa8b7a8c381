"""Settings of a run that differ from their defaults, as text for the start of a training."""

import json
from collections.abc import Iterator
from typing import Any

from nnlo_lib.config.base import non_defaults
from nnlo_lib.config.metrics import DEFAULT_METRICS, LOSSES
from nnlo_lib.config.run import Run


def changed_settings(run: Run) -> Iterator[str]:
    """Yield a line for each section of a run with the settings that are no defaults: `train: epochs 4, optimizer.lr 0.1`.

    A variant such as an optimizer is its name and the settings that are no defaults.
    """
    name = run.problem.name
    of_problem = {"loss": LOSSES.get(name, ("",))[0], "metrics": list(DEFAULT_METRICS.get(name, ()))}
    for section, value in non_defaults(run).items():
        if value != of_problem.get(section) and (settings := list(_settings(value))):
            yield f"{section}: {', '.join(settings)}"


def _settings(value: Any, key: str = "") -> Iterator[str]:
    """Yield `key value` for each value in nested settings.

    Args:
        value: settings, or a single value.
        key: keys that lead to the value, joined by dots; the name of a variant has the key of the variant.
    """
    if isinstance(value, dict):
        for name, each in sorted(value.items(), key=lambda item: item[0] != "name"):
            yield from _settings(each, key if name == "name" else f"{key}.{name}".lstrip("."))
    else:
        text = value if isinstance(value, str) else json.dumps(value)
        yield f"{key} {text}".lstrip()
