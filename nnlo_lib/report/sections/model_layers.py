"""The models that were trained, layer by layer."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nnlo_lib.models.layer_table_text import shape_text, si_count
from nnlo_lib.report.finished_job import group_by_run
from nnlo_lib.report.formatting import MISSING, UNBROKEN
from nnlo_lib.state.finished_run import FinishedRun

HEADINGS = ("layer", "type", "output shape", "weights", "settings", "FLOPs", "parameters")


@dataclass(frozen=True)
class ModelLayers:
    """A trained model.

    Attributes:
        name: name of the model.
        parameters: number of parameters.
        rows: one row per layer, cells in the order of HEADINGS.
        costs: sentence on the FLOPs per sample, or an empty string.
        runs: runs that trained the model.
    """

    name: str
    parameters: int
    rows: list[tuple[str, ...]]
    costs: str
    runs: list[str]


def trained_models(jobs: Sequence[FinishedRun]) -> list[ModelLayers]:
    """Return the distinct models, each with the runs that trained it."""
    found: dict[str, ModelLayers] = {}
    for run, group in group_by_run(jobs).items():
        model = group[0].summary.get("model")
        if model:
            rows = [_row(layer) for layer in model.get("layers", [])]
            known = ModelLayers(model["name"], model.get("parameters", 0), rows, _costs(group[0], model), [])
            # Two models are the same if everything that the summaries record of them is equal.
            found.setdefault(json.dumps(model, sort_keys=True), known).runs.append(run)
    return list(found.values())


def _row(layer: dict[str, Any]) -> tuple[str, ...]:
    parameters, flops = layer.get("parameters"), layer.get("flops")
    return (
        layer.get("name", ""), layer.get("type", ""), _shape(layer.get("shape")), _shape(layer.get("weights")),
        layer.get("settings", ""), _count(flops) if flops else MISSING,
        f"{parameters:,}" if parameters else MISSING,
    )  # fmt: skip


def _costs(job: FinishedRun, model: dict[str, Any]) -> str:
    """Return a sentence on the FLOPs per sample and, unless simulated, the FLOP/s of all ranks together."""
    flops = model.get("flops") or {}
    forward, backward = flops.get("forward"), flops.get("backward")
    if forward is None or backward is None:
        return ""
    costs = f"One sample requires {_count(forward)}FLOPs in the forward pass and {_count(backward)}FLOPs in the backward pass"
    if job.transport == "simulated":
        return f"{costs}."
    # Virtual seconds are excluded above: they say nothing about the speed of this machine.
    rate = (forward + backward) * job.summary["samples_per_second"]
    return f"{costs}; all ranks of {job.run} together computed {_count(round(rate))}FLOP/s on average, including waiting time."


def _count(number: int) -> str:
    return si_count(number).replace(" ", UNBROKEN)


def _shape(shape: Any) -> str:
    return shape_text(shape).replace("x", " × ")
