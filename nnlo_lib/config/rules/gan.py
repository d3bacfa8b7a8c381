"""Checks of the settings and models of a gan."""

from collections.abc import Iterator
from typing import Any

from nnlo_lib.config.base import suggest_name
from nnlo_lib.config.metrics import METRICS
from nnlo_lib.config.rules.precision import KeyedReason
from nnlo_lib.models.zoo_registry import GANS, MODELS


def gan_faults(run: Any) -> Iterator[KeyedReason]:
    """Yield the faults of a run (config.Run) whose problem or model is a gan."""
    model = run.model.name
    if run.problem.name == "gan":
        if model in MODELS.keys() - GANS.keys():
            yield f"{model} is not a generator with a critic; {suggest_name(model, GANS)}", ("model", "name")
        yield from _measure_faults(run)
        yield from _step_faults(run)
    elif model in GANS:
        yield f"{model} is a generator with a critic; set `problem: gan`", ("problem",)


def _measure_faults(run: Any) -> Iterator[KeyedReason]:
    problem = run.problem
    if problem.energy_weight is not None and run.model.name in GANS.keys() - {"calorimeter_gan"}:
        yield (
            f"the critic of {run.model.name} does not predict energies; remove `problem.energy_weight`, "
            "or set `model.name: calorimeter_gan`",
            ("problem", "energy_weight"),
        )
    if isinstance(run.loss, dict) or run.loss_weights:
        yield (
            "a gan has one loss, computed from the critic's outputs for real and generated samples; "
            "set one name and remove `loss_weights`",
            ("loss",),
        )
    if run.loss == "wasserstein" and not (problem.weight_clip or problem.gradient_penalty):
        yield (
            "wasserstein requires a critic of bounded slope; set `problem.gradient_penalty: 10` or "
            "`problem.weight_clip: 0.01`",
            ("problem",),
        )
    unknown = [name for name in run.metrics if name not in METRICS["gan"]]
    if unknown:
        yield f"'{unknown[0]}' is not a metric of a gan; use {', '.join(METRICS['gan'])}", ("metrics",)


def _step_faults(run: Any) -> Iterator[KeyedReason]:
    simulation = run.parallel.simulation
    has_no_optimizer = run.algorithm.capabilities.step == "algorithm's"
    if has_no_optimizer and (run.problem.weight_clip or run.problem.generator_optimizer):
        yield (
            f"{run.algorithm.name} has no optimizer; remove `problem.generator_optimizer`, and use "
            "`problem.gradient_penalty` instead of `problem.weight_clip`",
            ("algorithm", "name"),
        )
    if run.parallel.sync_batch_norm:
        yield (
            "not supported for a gan, whose networks normalize the samples of each rank; "
            "set `parallel.sync_batch_norm: false`",
            ("parallel", "sync_batch_norm"),
        )
    if run.parallel.transport == "simulated" and simulation.compute == "batched":
        yield (
            "batched is not supported for a gan; set `parallel.simulation.compute: exact`",
            ("parallel", "simulation", "compute"),
        )
