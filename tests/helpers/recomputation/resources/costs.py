"""Recomputation of the floating-point operations of passes, training and ranks."""

from math import prod
from statistics import fmean
from typing import Any

from helpers.recomputation.audit import Audit
from helpers.recomputation.element import Element
from helpers.recomputation.raw import Job, Trainings
from helpers.recomputation.sections.origin import job_of
from helpers.recomputation.tensors import parameter_shapes


def check_costs(audit: Audit, raw: Trainings) -> None:
    """Compare the FLOPs per sample and per second: dense networks in closed form, others as recorded."""
    for table in audit.page.section("origin").all("table", "layers"):
        job, siblings = job_of(table, raw), table.parent.parent.children
        after = [each for each in siblings[siblings.index(table.parent) :] if isinstance(each, Element)][1]
        _check_passes(audit, after, job)
        alike = [jobs for jobs in raw.runs.values() if _layers(jobs[0]) == _layers(job)]
        _check_rates(audit, after, [jobs for jobs in alike if not jobs[0].simulated], raw)


def _layers(job: Job) -> Any:
    return [job.summary["model"][name] for name in ("name", "layers")]


def _check_passes(audit: Audit, line: Element, job: Job) -> None:
    gan = job.summary["config"]["problem"]["name"] == "gan"
    where = "generator and critic" if gan else "the model"
    template = (
        f"One sample requires {{}}FLOPs in a forward pass through {where} and {{}}FLOPs in a backward pass."
    )
    audit.says(line, template, *passes(job))
    note = " (mean over the steps of critic and generator)" if gan else ""
    audit.says(line, f"Training requires {{}}FLOPs per sample{note}.", _training(job))


def passes(job: Job) -> tuple[float, float]:
    """Return the operations of a forward and of a backward pass for one sample."""
    shapes = [
        shape for shape in parameter_shapes(job.folder / "model.safetensors").values() if len(shape) > 1
    ]
    if {each["type"] for each in job.summary["model"]["layers"]} <= {"Linear", "Flatten", "ReLU"}:
        # The first layer has no gradient of its inputs.
        weights = [2 * prod(shape) for shape in shapes]
        return float(sum(weights)), float(2 * sum(weights) - weights[0])
    flops = job.summary["model"]["flops"]
    return float(flops["forward"]), float(flops["backward"])


def _training(job: Job) -> float:
    if job.summary["config"]["problem"]["name"] == "gan":
        return float(job.summary["model"]["flops"]["training"])
    return sum(passes(job))


def _check_rates(audit: Audit, line: Element, measured: list[list[Job]], raw: Trainings) -> None:
    """Compare the operations per second of all ranks, mean over the trainings of a run."""
    texts, rates = [], []
    for jobs in measured:
        speeds = [job.summary["samples_seen"] / job.summary["training_seconds"] for job in jobs]
        texts.append(f"{{}}FLOP/s in {jobs[0].run}")
        rates.append(_training(jobs[0]) * fmean(speeds))
    if not measured:
        return audit.require("All ranks together" not in line.text, line, "virtual operations per second")
    joined = " and ".join(filter(None, [", ".join(texts[:-1]), texts[-1]]))
    several = ", mean over the training tasks of a run" if max(map(len, measured)) > 1 else ""
    template = f"All ranks together computed {joined} (including waiting time{several})."
    return audit.says(line, template, *rates)
