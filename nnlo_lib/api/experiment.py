"""Experiments from a file or a dictionary."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nnlo_lib.config import Experiment
from nnlo_lib.core.errors import UserError
from nnlo_lib.experiment import load


def load_experiment(
    source: str | Path | Mapping[str, Any] | Experiment, changes: Mapping[str, Any] | None = None
) -> Experiment:
    """Return the checked experiment of a YAML file, of a mapping with the same keys, or of another experiment.

    Args:
        source: path of the file, the settings, or the experiment to change.
        changes: settings to override by dotted key, for example `{"train.epochs": 3}`, as by `--set`.

    Raises:
        UserError: lists every mistake with its key, and the line of the file.
    """
    overrides = [f"{key}={json.dumps(value)}" for key, value in (changes or {}).items()]
    if isinstance(source, Experiment):
        # Without defaults: a default that is written out would count as set by the user, for example in the
        # check of unused settings.
        source = source.model_dump(mode="json", exclude_unset=True)
    if isinstance(source, Mapping):
        return load.experiment_from_settings(source, overrides)
    return load.load_experiment(source, overrides)


def chosen_run(experiment: Experiment, run: str | None) -> str:
    """Return `run`, or by default the name of the first run. Raises UserError if there is no such run."""
    names = list(experiment.variants)
    if run is not None and run not in names:
        raise UserError(f"run: {experiment.name} has no run {run!r}; choose one of: {', '.join(names)}")
    return run or names[0]
