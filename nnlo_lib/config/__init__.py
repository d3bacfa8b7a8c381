"""The experiment file as typed, frozen models: every key, its default, its unit and its limits.

`nnlo_lib.experiment.load.load_experiment` reads a file into an `Experiment`; `docs/reference/experiment.md`, the JSON schema
and the default file are generated from the descriptions below. Settings of one part are imported from their module.
"""

from nnlo_lib.config.base import (
    NAME_PATTERN,
    ConfigModel,
    block_types,
    merge_settings,
    raise_config_error,
    suggest_name,
)
from nnlo_lib.config.experiment import Experiment
from nnlo_lib.config.run import JobSpec, Run

__all__ = [
    "NAME_PATTERN",
    "ConfigModel",
    "Experiment",
    "JobSpec",
    "Run",
    "block_types",
    "merge_settings",
    "raise_config_error",
    "suggest_name",
]
