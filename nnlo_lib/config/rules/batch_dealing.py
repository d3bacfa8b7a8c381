"""Checks that workers can take batches on demand (`train.dealing: dynamic`)."""

from collections.abc import Iterator
from typing import Any

from nnlo_lib.config.base import ConfigFault

KEY = ("train", "dealing")


def dynamic_dealing_faults(run: Any) -> Iterator[ConfigFault]:
    """Yield the faults of a run (config.Run) with dynamic dealing."""
    if not run.algorithm.is_asynchronous:
        yield _waiting_fault(run.algorithm)
    if run.data.partition.name != "iid":
        yield ConfigFault(
            "workers with separate samples (data.partition) cannot take batches of other workers; set `train.dealing: static`",
            KEY,
        )
    if run.parallel.processes_per_worker > 1:
        yield ConfigFault(
            "the processes of a worker wait for each other; set `train.dealing: static`",
            KEY,
        )
    if run.train.validate_every is not None:
        yield ConfigFault(
            "with dynamic dealing, the number of steps per worker is not known in advance; set `train.dealing: static`, "
            "or remove `train.validate_every`",
            ("train", "validate_every"),
        )


def _waiting_fault(algorithm: Any) -> ConfigFault:
    reason = f"the workers of {algorithm.name} wait for each other; set `train.dealing: static`"
    # The settings made an asynchronous algorithm synchronous.
    if algorithm.capabilities.asynchronous:
        reason = f"with `algorithm.synchronous: true`, {reason}, or remove `algorithm.synchronous`"
    return ConfigFault(reason, KEY)
