"""Checks of a momentum that an algorithm adds to the workers' optimizer."""

from collections.abc import Iterator
from typing import Any

from nnlo_lib.config.base import ConfigFault
from nnlo_lib.config.rules.gan import RESTING

KEY = ("algorithm", "momentum")


def double_momentum(algorithm: Any, optimizer: Any) -> Iterator[str]:
    """Yield a warning if the algorithm (config.GEMConfig, EASGDConfig) and the optimizer both have momentum."""
    if algorithm.momentum and (getattr(optimizer, "beta1", 0) or getattr(optimizer, "momentum", 0)):
        yield (
            f"algorithm.momentum: {algorithm.name} multiplies its momentum with the momentum of {optimizer.name}, which trains "
            "badly; set `algorithm.momentum: 0`, or an optimizer without momentum"
        )


def worker_momentum_faults(run: Any) -> Iterator[ConfigFault]:
    """Yield the settings of a run (config.Run) that a momentum outside the optimizer would break."""
    if run.parallel.processes_per_worker > 1:
        yield ConfigFault(
            "the processes of a worker share parameters, but only one of them has the momentum; "
            "set `parallel.processes_per_worker: 1`, or `algorithm.momentum: 0`",
            KEY,
        )
    if run.train.precision == "fp16":
        yield ConfigFault(
            "the momentum also moves parameters in a step that fp16 skips; set `train.precision: bf16`, "
            "or `algorithm.momentum: 0`",
            KEY,
        )
    yield from _gan_faults(run.problem, run.algorithm.name)


def _gan_faults(problem: Any, name: str) -> Iterator[ConfigFault]:
    for key in ("weight_clip", "generator_optimizer"):
        if getattr(problem, key, None):
            yield ConfigFault(
                f"the momentum of {name} is added after the step that `problem.{key}` changes; "
                f"set `algorithm.momentum: 0`, or remove `problem.{key}`",
                KEY,
            )
    if resting := getattr(problem, "resting_key", None):
        moved, off = RESTING[resting]
        yield ConfigFault(
            f"the momentum would move {moved} in every step; set `problem.{resting}: {off}`, or `algorithm.momentum: 0`",
            KEY,
        )
