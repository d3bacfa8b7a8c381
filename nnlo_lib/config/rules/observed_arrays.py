"""Checks that a run has what the settings of `observe` request."""

from collections.abc import Iterator
from typing import Any

from nnlo_lib.config.base import ConfigFault

SUPERVISED = ("classification", "regression", "dense_classification")


def observed_array_faults(run: Any) -> Iterator[ConfigFault]:
    """Yield the settings of `observe` for which a run (config.Run) has nothing to write."""
    if run.observe.consensus_matrix and not run.algorithm.capabilities.replicas_differ:
        yield ConfigFault(
            f"{run.algorithm.name} has one common model, which has no distances between nodes; remove this key, or use "
            "an algorithm whose nodes have their own models, such as dinno or dsgd",
            ("observe", "consensus_matrix"),
        )
    if run.observe.sample_metrics and run.problem.name not in SUPERVISED:
        yield ConfigFault(
            f"a problem {run.problem.name} has no metrics of single samples; remove this key, or use "
            f"{' or '.join(SUPERVISED)}",
            ("observe", "sample_metrics"),
        )
    if run.observe.sample_metrics and run.data.validation == 0:
        yield ConfigFault(
            "the run has no validation samples; set data.validation, for example 0.1, or remove this key",
            ("observe", "sample_metrics"),
        )
