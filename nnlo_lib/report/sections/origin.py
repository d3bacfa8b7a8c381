"""Origin of the results: settings, trained models, published weights, code, hosts, packages and commands."""

import json
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import fmean
from typing import Any

import pandas as pd

from nnlo_lib.config.paths import RunPaths
from nnlo_lib.core.secrets import mask
from nnlo_lib.core.text_format import MISSING, plural
from nnlo_lib.models.layer_table_text import shape_text, si_count
from nnlo_lib.report.formatting import UNBROKEN, format_bytes, format_duration, listing, task_listing
from nnlo_lib.report.quantities import measured_values
from nnlo_lib.report.tables import group_by_run
from nnlo_lib.state.finished_run import FinishedRun
from nnlo_lib.state.published_results import has_copy

HEADINGS = ("layer", "type", "output shape", "weights", "settings", "FLOPs", "parameters")


@dataclass(frozen=True)
class ResolvedSetting:
    """A dotted key of the resolved configuration, and its value in each run."""

    key: str
    values: tuple[str, ...]

    @property
    def differs(self) -> bool:
        """Whether the value differs between runs."""
        return len(set(self.values)) > 1


def resolved_settings(jobs: Sequence[FinishedRun]) -> list[ResolvedSetting]:
    """Return every key of the resolved configurations, in order of first appearance."""
    flat = [dict(_flatten(group[0].summary["config"])) for group in group_by_run(jobs).values()]
    keys = dict.fromkeys(key for config in flat for key in config)
    return [ResolvedSetting(key, tuple(config.get(key, MISSING) for config in flat)) for key in keys]


def _flatten(config: dict[str, Any], prefix: str = "") -> Iterable[tuple[str, str]]:
    for key, value in config.items():
        if isinstance(value, dict) and value:
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield prefix + key, mask(value if isinstance(value, str) else json.dumps(value))


@dataclass(frozen=True)
class ModelLayers:
    """A trained model.

    Attributes:
        rows: one row per layer, cells in the order of HEADINGS.
        costs: sentences on the FLOPs per sample and per second, or an empty string.
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


def _shape(shape: Any) -> str:
    return shape_text(shape).replace("x", " × ")


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


def _training_flops(job: FinishedRun) -> float | None:
    """Return the FLOPs of training per sample; None if the training step could not be counted."""
    training: float | None = (job.recorded("model").get("flops") or {}).get("training")
    return training


def _is_gan(job: FinishedRun) -> bool:
    return job.config_section("problem").get("name") == "gan"


def _count(number: int) -> str:
    return si_count(number).replace(" ", UNBROKEN)


def published_weights_sentence(jobs: Sequence[FinishedRun]) -> str:
    """Return sentences on the published weights of each run with train.restore_best; else an empty string."""
    groups = group_by_run(jobs).items()
    restored = {run: group for run, group in groups if group[0].config_section("train").get("restore_best")}
    return " ".join(_sentence(run, group) for run, group in restored.items())


def _sentence(run: str, jobs: Sequence[FinishedRun]) -> str:
    best = jobs[0].config_section("train")["restore_best"]
    metric = best["metric"] if isinstance(best, dict) else best
    places = [place for job in jobs if (place := _place(job, metric))]
    if not places:
        return ""
    return (
        f"Test results and model file of {run} are of the weights with the best {metric} (train.restore_best): after "
        f"{task_listing(places)}."
    )


def _place(job: FinishedRun, metric: str) -> str:
    """Return the step and the epoch of the published weights as text; empty if the weights of the last step were published."""
    step = job.summary.get("published_step")
    if step is None:
        return ""
    values = measured_values(job, metric)
    found = values["epoch"][values["step"] == step]
    epoch = "" if found.empty else f" (epoch {round(float(found.iloc[-1]), 2):g} of {job.epochs})"
    return f"step {step:,}{epoch}"


def published_epoch(job: FinishedRun) -> "pd.Series[float] | None":
    """Return the row of the history at the published step, or None if this step is within an epoch."""
    step = job.summary.get("published_step")
    if step is None:
        return job.history.iloc[-1]
    found = job.history[job.history["step"] == step]
    return None if found.empty else found.iloc[-1]


def provenance_facts(jobs: Sequence[FinishedRun]) -> list[tuple[str, str]]:
    """Return code version, user's files, hosts and their hardware, number of jobs, start, finish and configuration hash.

    If jobs differ in a fact, all its values are listed.
    """
    ranks = [str(count) for count in sorted({job.summary["ranks"] for job in jobs})]
    hosts = _different(host for job in jobs for host in job.summary.get("hosts", []))
    rows = [
        ("code", _different(job.summary.get("code_version") for job in jobs)),
        ("user's files", _different(_user_files(jobs))),
        ("left out of the data", _different(_left_out(jobs))),
        ("hosts", hosts),
        ("hardware", "; ".join(hardware_texts(job.summary.get("hardware", {}) for job in jobs))),
        ("training tasks", f"{len(jobs)}, with {listing(ranks)} rank{'' if ranks == ['1'] else 's'}"),
        *_span(jobs),
        ("configuration", _different(job.summary.get("config_hash") for job in jobs)),
    ]
    return [(name, value) for name, value in rows if value]


def _left_out(jobs: Sequence[FinishedRun]) -> Iterable[str]:
    """Yield the sentences of the conversions on what they left out or changed."""
    for job in jobs:
        yield from job.summary.get("data", {}).get("left_out", [])


def _user_files(jobs: Sequence[FinishedRun]) -> Iterable[str]:
    """Yield each file with the start of its checksum; copies of the code are kept with each job."""
    for job in jobs:
        for path, checksum in job.input_checksums.items():
            kept = f" in {RunPaths.code.name}/" if has_copy(path) else ""
            yield f"{path} ({checksum[:8]}{kept})"


def hardware_texts(hosts: Iterable[dict[str, dict[str, Any]]]) -> list[str]:
    """Return the distinct descriptions of hosts: processor, cores, memory and GPUs.

    Args:
        hosts: hardware by host, for each summary.
    """
    return list(dict.fromkeys(_hardware_text(name, host) for each in hosts for name, host in each.items()))


def _hardware_text(name: str, host: dict[str, Any]) -> str:
    gpus = [f"{count} × {gpu}" for gpu, count in Counter(host["gpus"]).items()]
    parts = [
        host["cpu"],
        f"{plural(host['threads'], 'thread')} of {plural(host['ranks'], 'rank')} on {host['cores_available']} of "
        f"{plural(host['cores'], 'core')}",
        f"{format_bytes(host['memory_bytes'])} memory",
        *gpus,
    ]
    return f"{name}: {', '.join(parts)}"


def _span(jobs: Sequence[FinishedRun]) -> list[tuple[str, str]]:
    # Times are UTC in ISO 8601, so that their alphabetical order is their order in time.
    started = sorted(str(job.summary["started"]) for job in jobs if job.summary.get("started"))
    finished = sorted(str(job.summary["finished"]) for job in jobs if job.summary.get("finished"))
    if not started or not finished:
        return []
    try:
        took = (datetime.fromisoformat(finished[-1]) - datetime.fromisoformat(started[0])).total_seconds()
    except (TypeError, ValueError):
        return [("started", started[0]), ("finished", finished[-1])]
    return [("started", started[0]), ("finished", f"{finished[-1]} ({format_duration(took)} later)")]


def packages(jobs: Sequence[FinishedRun]) -> list[tuple[str, str]]:
    """Return the version of each package; if jobs differ, all versions are listed."""
    known = [job.summary.get("packages", {}) for job in jobs]
    keys = dict.fromkeys(key for versions in known for key in versions)
    return [(key, _different(versions.get(key) for versions in known)) for key in keys]


def commands(jobs: Sequence[FinishedRun], experiment_file: Path | None) -> str:
    """Return the shell commands that repeat the experiment; those of a commit are for a clone of the repository."""
    # The code version is `<version> (<commit>)`, with `+` after the commit if files were modified.
    commit = re.search(r"([0-9a-f]{7,40})(\+?)\)$", str(jobs[0].summary.get("code_version", "")))
    checkout = ""
    if commit:
        remarks = ["plus the uncommitted changes"] * bool(commit[2])
        # One command cannot reproduce trainings by several versions.
        versions = {str(job.summary.get("code_version")) for job in jobs}
        remarks += ["code of the first training task; others differ"] * (len(versions) > 1)
        checkout = f"git checkout {commit[1]}{'  # ' * bool(remarks)}{'; '.join(remarks)}\nmake setup\nsource .venv/bin/activate\n"
    file = shlex.quote(str(experiment_file)) if experiment_file else "FILE"
    return f"{checkout}nnlo all {file}"


def _different(values: Iterable[object]) -> str:
    return ", ".join(dict.fromkeys(str(value) for value in values if value is not None))
