"""The experiment file as typed, frozen models: every key with its default, unit and limits.

`nnlo_lib.experiment.load.load_experiment` reads a file into an `Experiment`. `docs/reference/experiment.md`, the JSON
schema and the default file are generated from the docstrings and descriptions of the models. Import the settings of
one section from its module.
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
