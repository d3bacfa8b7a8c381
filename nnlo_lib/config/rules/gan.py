"""Which settings go with a gan, and which models."""

from collections.abc import Iterator
from typing import Any

from nnlo_lib.config.base import suggest_name
from nnlo_lib.config.metrics import METRICS
from nnlo_lib.config.rules.precision import KeyedReason
from nnlo_lib.models.zoo_registry import GANS, MODELS


def gan_faults(run: Any) -> Iterator[KeyedReason]:
    """Yield why a run (config.Run) cannot be one of a generator and a critic, or cannot be another."""
    model = run.model.name
    if run.problem.name == "gan":
        if model in MODELS.keys() - GANS.keys():
            yield f"{model} is no generator with a critic; {suggest_name(model, GANS)}", ("model", "name")
        yield from _measure_faults(run)
        yield from _step_faults(run)
    elif model in GANS:
        yield f"{model} is a generator with a critic; write problem: gan", ("problem",)


def _measure_faults(run: Any) -> Iterator[KeyedReason]:
    problem = run.problem
    if problem.energy_weight is not None and run.model.name in GANS.keys() - {"calorimeter_gan"}:
        yield (
            f"the critic of {run.model.name} tells no energies; calorimeter_gan's does",
            ("problem", "energy_weight"),
        )
    if isinstance(run.loss, dict) or run.loss_weights:
        yield "a gan has one loss, of what its critic says of real and of made samples", ("loss",)
    if run.loss == "wasserstein" and not (problem.weight_clip or problem.gradient_penalty):
        yield (
            "wasserstein needs a critic of bounded slope: gradient_penalty: 10, or weight_clip: 0.01",
            ("problem",),
        )
    strange = [name for name in run.metrics if name not in METRICS["gan"]]
    if strange:
        yield f"a gan measures {', '.join(METRICS['gan'])}, not {strange[0]}", ("metrics",)


def _step_faults(run: Any) -> Iterator[KeyedReason]:
    simulation = run.parallel.simulation
    has_no_optimizer = run.algorithm.capabilities.step == "algorithm's"
    if has_no_optimizer and (run.problem.weight_clip or run.problem.generator_optimizer):
        yield (
            f"{run.algorithm.name} has no optimizer: use gradient_penalty, and no generator_optimizer",
            ("algorithm", "name"),
        )
    if run.parallel.sync_batch_norm:
        yield "the networks of a gan normalize by rank; leave it out", ("parallel", "sync_batch_norm")
    if run.parallel.transport == "simulated" and simulation.compute == "batched":
        yield "the networks of a gan are not stacked; use exact", ("parallel", "simulation", "compute")
