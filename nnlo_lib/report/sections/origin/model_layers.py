"""The models that were trained, layer by layer."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from nnlo_lib.core.text_format import MISSING
from nnlo_lib.models.layer_table_text import shape_text, si_count
from nnlo_lib.report.finished_job import group_by_run
from nnlo_lib.report.formatting import UNBROKEN, listing
from nnlo_lib.state.finished_run import FinishedRun

HEADINGS = ("layer", "type", "output shape", "weights", "settings", "FLOPs", "parameters")


@dataclass(frozen=True)
class ModelLayers:
    """A trained model.

    Attributes:
        name: name of the model.
        parameters: number of parameters.
        rows: one row per layer, cells in the order of HEADINGS.
        costs: sentences on the FLOPs per sample and per second, or an empty string.
        runs: runs that trained the model.
    """

    name: str
    parameters: int
    rows: list[tuple[str, ...]]
    costs: str
    runs: list[str]


def trained_models(jobs: Sequence[FinishedRun]) -> list[ModelLayers]:
    """Return the distinct models, each with the runs that trained it."""
    found: dict[str, dict[str, list[FinishedRun]]] = {}
    for run, group in group_by_run(jobs).items():
        if model := group[0].summary.get("model"):
            found.setdefault(_identity(model), {})[run] = group
    return [_trained(groups) for groups in found.values()]


def _identity(model: dict[str, Any]) -> str:
    """Return a text that is equal for equal models; the FLOPs of training also depend on the problem."""
    flops = {name: count for name, count in (model.get("flops") or {}).items() if name != "training"}
    return json.dumps(model | {"flops": flops}, sort_keys=True)


def _trained(groups: dict[str, list[FinishedRun]]) -> ModelLayers:
    first = next(iter(groups.values()))[0]
    model = first.summary["model"]
    rows = [_row(layer) for layer in model.get("layers", [])]
    costs = " ".join(filter(None, [_cost_of_pass(first, model), _cost_of_sample(groups), _rates(groups)]))
    return ModelLayers(model["name"], model.get("parameters", 0), rows, costs, list(groups))


def _row(layer: dict[str, Any]) -> tuple[str, ...]:
    parameters, flops = layer.get("parameters"), layer.get("flops")
    return (
        layer.get("name", ""), layer.get("type", ""), _shape(layer.get("shape")), _shape(layer.get("weights")),
        layer.get("settings", ""), _count(flops) if flops else MISSING,
        f"{parameters:,}" if parameters else MISSING,
    )  # fmt: skip


def _is_gan(job: FinishedRun) -> bool:
    return job.config_section("problem").get("name") == "gan"


def _cost_of_pass(job: FinishedRun, model: dict[str, Any]) -> str:
    """Return a sentence on the FLOPs of one pass through the model, or an empty string."""
    flops = model.get("flops") or {}
    forward, backward = flops.get("forward"), flops.get("backward")
    if forward is None or backward is None:
        return ""
    where = "generator and critic" if _is_gan(job) else "the model"
    return (
        f"One sample requires {_count(forward)}FLOPs in a forward pass through {where} and {_count(backward)}FLOPs in a "
        "backward pass."
    )


def _training_flops(job: FinishedRun) -> float | None:
    """Return the FLOPs of training per sample; None if the training step could not be counted."""
    training: float | None = (job.recorded("model").get("flops") or {}).get("training")
    return training


def _cost_of_sample(groups: dict[str, list[FinishedRun]]) -> str:
    """Return a sentence on the FLOPs of training per sample, by run if the runs differ, or an empty string."""
    known = {run: flops for run, jobs in groups.items() if (flops := _training_flops(jobs[0])) is not None}
    texts = {run: f"{_count(round(flops))}FLOPs" for run, flops in known.items()}
    if not texts:
        return ""
    several = len(set(texts.values())) > 1 or len(texts) < len(groups)
    costs = listing([f"{text} in {run}" for run, text in texts.items()] if several else [*texts.values()][:1])
    passes = (
        " (mean over the steps of critic and generator)" if _is_gan(next(iter(groups.values()))[0]) else ""
    )
    return f"Training requires {costs} per sample{passes}."


def _rates(groups: dict[str, list[FinishedRun]]) -> str:
    """Return a sentence on the FLOP/s of all ranks by run, mean over its jobs; empty if unknown or simulated."""
    rates = {run: [rate for job in jobs if (rate := _rate(job))] for run, jobs in groups.items()}
    texts = [f"{_count(round(fmean(known)))}FLOP/s in {run}" for run, known in rates.items() if known]
    if not texts:
        return ""
    mean = ", mean over the training tasks of a run" if max(map(len, rates.values())) > 1 else ""
    return f"All ranks together computed {listing(texts)} (including waiting time{mean})."


def _rate(job: FinishedRun) -> float | None:
    """Return the FLOP/s of all ranks; None if unknown, or if simulated: virtual seconds say nothing about a machine."""
    flops = _training_flops(job)
    if flops is None or job.transport == "simulated":
        return None
    return flops * float(job.summary["samples_per_second"])


def _count(number: int) -> str:
    return si_count(number).replace(" ", UNBROKEN)


def _shape(shape: Any) -> str:
    return shape_text(shape).replace("x", " × ")
