"""Experiment of a rule and one of Theano-MPI's own models."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from nnlo_lib.compat.importers.theano_mpi.session import TheanoSession
from nnlo_lib.compat.importers.theano_mpi.session_to_experiment import translate_session
from nnlo_lib.compat.importers.yaml_page import render_yaml
from nnlo_lib.compat.theano_mpi.rule_settings import RuleSettings
from nnlo_lib.config import Experiment, merge_settings
from nnlo_lib.experiment.load import experiment_from_settings


def zoo_experiment(
    rule: RuleSettings, devices: Sequence[str], file: str, name: str, settings: Mapping[str, Any]
) -> Experiment:
    """Return the experiment of one of Theano-MPI's own models; print it to stderr with what differs in meaning.

    Args:
        rule: settings of the rule.
        devices: one device per rank.
        file: dotted name of the model's module.
        name: name of its class.
        settings: keys that override those of the model.
    """
    keys = {"RULE": rule.rule, "MODELFILE": file, "MODELCLASS": name, "DEVICES": ",".join(devices)}
    if rule.rule == "BSP":
        keys |= {"BSP_SYNC_TYPE": rule.sync_type, "BSP_EXCH_STRATEGY": rule.exch_strategy}
    draft = translate_session(TheanoSession(keys))
    if "cpu" in devices:
        draft.override("parallel.gpus_per_rank", 0, f"devices={list(devices)}")
        draft.settings = [each for each in draft.settings if each.key != "parallel.gpu_exchange"]
    if rule.algorithm_settings:
        draft.override("algorithm", rule.algorithm_settings, f"attributes of {rule.rule}")
    text = render_yaml(draft, f"{rule.rule}.init")
    print(text, file=sys.stderr)
    return experiment_from_settings(merge_settings(yaml.safe_load(text), dict(settings)))
