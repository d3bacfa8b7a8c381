"""Checks of the settings and models of a gan."""

from collections.abc import Iterator
from typing import Any

from nnlo_lib.config.algorithm_base import GanGuarantee
from nnlo_lib.config.base import ConfigFault, suggest_name
from nnlo_lib.config.compression import NoCompressionConfig
from nnlo_lib.config.metrics import METRICS
from nnlo_lib.models.zoo_registry import GANS, MODELS

# Network that rests in some steps because of a key, and the value with which it does not.
RESTING = {
    "critic_steps": ("the generator", "1"),
    "critic_warm_up": ("the generator", "null"),
    "half_steps": ("the resting network", "false"),
}


def gan_faults(run: Any) -> Iterator[ConfigFault]:
    """Yield the faults of a run (config.Run) whose problem or model is a gan."""
    model = run.model.name
    if run.problem.name == "gan":
        if model in MODELS.keys() - GANS.keys():
            yield ConfigFault(
                f"{model} is not a generator with a critic; {suggest_name(model, GANS)}", ("model", "name")
            )
        yield from _measure_faults(run)
        yield from _step_faults(run)
        yield from _guarantee_faults(run)
    elif model in GANS:
        yield ConfigFault(f"{model} is a generator with a critic; set `problem: gan`", ("problem",))


def _measure_faults(run: Any) -> Iterator[ConfigFault]:
    problem = run.problem
    if problem.energy_weight is not None and run.model.name in GANS.keys() - {"calorimeter_gan"}:
        yield ConfigFault(
            f"the critic of {run.model.name} does not predict energies; remove `problem.energy_weight`, "
            "or set `model.name: calorimeter_gan`",
            ("problem", "energy_weight"),
        )
    if isinstance(run.loss, dict) or run.loss_weights:
        yield ConfigFault(
            "a gan has one loss, computed from the critic's outputs for real and generated samples; "
            "set one name and remove `loss_weights`",
            ("loss",),
        )
    if run.loss == "wasserstein" and not (problem.weight_clip or problem.gradient_penalty):
        yield ConfigFault(
            "wasserstein requires a critic of bounded slope; set `problem.gradient_penalty: 10` or "
            "`problem.weight_clip: 0.01`",
            ("problem",),
        )
    unknown = [name for name in run.metrics if name not in METRICS["gan"]]
    if unknown:
        yield ConfigFault(
            f"'{unknown[0]}' is not a metric of a gan; use {', '.join(METRICS['gan'])}", ("metrics",)
        )


def _guarantee_faults(run: Any) -> Iterator[ConfigFault]:
    """Yield the settings of a gan that the algorithm, or the compression, would break."""
    name, row, problem = run.algorithm.name, run.algorithm.capabilities, run.problem
    compressed = not isinstance(run.compression, NoCompressionConfig)
    broken = {"no": name, "without compression": f"{name} with compression" if compressed else ""}
    if problem.weight_clip and (what := broken.get(row.keeps_weight_clip)):
        yield ConfigFault(
            f"{what} changes weights after the optimizer has bounded them; set `problem.gradient_penalty: 10` instead"
            f"{_or_without_compression(row.keeps_weight_clip)}",
            ("problem", "weight_clip"),
        )
    if (key := problem.resting_key) and (what := broken.get(row.keeps_critic_steps)):
        moved, off = RESTING[key]
        yield ConfigFault(
            f"{what} also passes parts of earlier gradients to the optimizer, which would move {moved} in every "
            f"step; set `problem.{key}: {off}`{_or_without_compression(row.keeps_critic_steps)}",
            ("problem", key),
        )


def _or_without_compression(guarantee: GanGuarantee) -> str:
    return ", or `compression.name: none`" if guarantee == "without compression" else ""


def _step_faults(run: Any) -> Iterator[ConfigFault]:
    simulation = run.parallel.simulation
    has_no_optimizer = run.algorithm.capabilities.step == "algorithm's"
    if has_no_optimizer and (run.problem.weight_clip or run.problem.generator_optimizer):
        yield ConfigFault(
            f"{run.algorithm.name} has no optimizer; remove `problem.generator_optimizer`, and use "
            "`problem.gradient_penalty` instead of `problem.weight_clip`",
            ("algorithm", "name"),
        )
    if run.parallel.sync_batch_norm:
        yield ConfigFault(
            "not supported for a gan, whose networks normalize the samples of each rank; "
            "set `parallel.sync_batch_norm: false`",
            ("parallel", "sync_batch_norm"),
        )
    if run.parallel.transport == "simulated" and simulation.compute == "batched":
        yield ConfigFault(
            "batched is not supported for a gan; set `parallel.simulation.compute: exact`",
            ("parallel", "simulation", "compute"),
        )
