"""Origin of the results: settings, trained models, published weights, code, hosts, packages and commands."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from statistics import fmean
from typing import Any

import pandas as pd

from nnlo_lib.config.paths import SEARCH_FOLDER, RunPaths
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.secrets import mask
from nnlo_lib.core.text_format import MISSING, plural
from nnlo_lib.models.layer_table_text import shape_text, si_count
from nnlo_lib.report.formatting import UNBROKEN, format_bytes, format_duration, listing
from nnlo_lib.report.tables import group_by_run
from nnlo_lib.search.best import non_default_settings
from nnlo_lib.state.finished_run import FinishedRun
from nnlo_lib.state.published_results import has_copy

HEADINGS = ("layer", "type", "output shape", "weights", "settings", "FLOPs", "parameters")


def resolved_settings(jobs: Sequence[FinishedRun]) -> list[dict[str, Any]]:
    """Return every key of the resolved configurations: its text in each run, whether they differ, and whether one is no default.

    Keys that differ come first, else keys are in the order of first appearance.
    """
    groups = group_by_run(jobs).values()
    flat = [dict(_flatten(group[0].summary["config"])) for group in groups]
    chosen: set[str] = set()
    for group, config in zip(groups, flat, strict=True):
        try:
            chosen.update(key for key, _ in _flatten(non_default_settings(group[0].config)))
        except UserError:  # of another version, whose defaults are not known
            chosen.update(config)
    keys = dict.fromkeys(key for config in flat for key in config)
    found = {key: tuple(config.get(key, MISSING) for config in flat) for key in keys}
    rows = [
        {"key": key, "texts": texts, "differs": len(set(texts)) > 1, "is_set": key in chosen}
        for key, texts in found.items()
    ]
    return sorted(rows, key=lambda row: not row["differs"])


def _flatten(config: dict[str, Any], prefix: str = "") -> Iterable[tuple[str, str]]:
    for key, value in config.items():
        if isinstance(value, dict) and value:
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", mask(value if isinstance(value, str) else json.dumps(value))


def trained_models(jobs: Sequence[FinishedRun]) -> list[dict[str, Any]]:
    """Return the distinct models, each with its runs, layers in the order of HEADINGS, and sentences on its FLOPs."""
    found: dict[str, dict[str, list[FinishedRun]]] = {}
    for run, group in group_by_run(jobs).items():
        if model := group[0].summary.get("model"):
            # The FLOPs of training of equal models differ, because they also depend on the problem.
            flops = {name: count for name, count in (model.get("flops") or {}).items() if name != "training"}
            identity = json.dumps(model | {"flops": flops}, sort_keys=True)
            found.setdefault(identity, {})[run] = group
    models = []
    for groups in found.values():
        model = next(iter(groups.values()))[0].summary["model"]
        layers = [
            (
                layer.get("name", ""), layer.get("type", ""),
                *(shape_text(layer.get(key)).replace("x", " × ") for key in ("shape", "weights")),
                layer.get("settings", ""), _count(flops) if (flops := layer.get("flops")) else MISSING,
                f"{count:,}" if (count := layer.get("parameters")) else MISSING,
            )
            for layer in model.get("layers", [])
        ]  # fmt: skip
        found_model = {"name": model["name"], "parameters": model.get("parameters", 0), "runs": [*groups]}
        models.append(found_model | {"layers": layers, "costs": _costs(groups)})
    return models


def _costs(groups: dict[str, list[FinishedRun]]) -> str:
    """Return sentences on the FLOPs of training per sample, and on the FLOP/s of all ranks, as far as they are known.

    Virtual seconds say nothing about a machine, so that simulated runs have no FLOP/s.
    """
    first = next(iter(groups.values()))[0]
    is_gan = first.config_section("problem").get("name") == "gan"
    sentences = []
    # Of training per sample; unknown if the training step could not be counted.
    known = {
        run: count
        for run, jobs in groups.items()
        if (count := (jobs[0].recorded("model").get("flops") or {}).get("training")) is not None
    }
    texts = {run: f"{_count(round(count))}FLOPs" for run, count in known.items()}
    if texts:
        named = [f"{text} in {run}" for run, text in texts.items()]
        is_same = len(set(texts.values())) == 1 and len(texts) == len(groups)
        costs = next(iter(texts.values())) if is_same else listing(named)
        steps = " (mean over the steps of critic and generator)" if is_gan else ""
        sentences.append(f"Training requires {costs} per sample{steps}.")
    speeds = {
        run: [job.summary["samples_per_second"] for job in groups[run] if job.transport != "simulated"]
        for run in known
    }
    rates = [
        f"{_count(round(known[run] * fmean(each)))}FLOP/s in {run}" for run, each in speeds.items() if each
    ]
    if rates:
        mean = ", mean over the training tasks of a run" if max(map(len, groups.values())) > 1 else ""
        sentences.append(f"All ranks together computed {listing(rates)} (including waiting time{mean}).")
    return " ".join(sentences)


def _count(number: int) -> str:
    return si_count(number).replace(" ", UNBROKEN)


def published_weights_sentence(jobs: Sequence[FinishedRun]) -> str:
    """Return sentences on the published weights of the runs with train.restore_best; else an empty string."""
    runs = dict[str, list[str]]()
    for run, group in group_by_run(jobs).items():
        # Without a step, the weights of the last step were published.
        if any(job.summary.get("published_step") is not None for job in group):
            best = group[0].config_section("train").get("restore_best")
            runs.setdefault(str(best["metric"] if isinstance(best, dict) else best), []).append(run)
    return " ".join(
        f"Test results and model files of {listing(names)} are of the weights with the best {metric} (train.restore_best)."
        for metric, names in runs.items()
    )


def published_epoch(job: FinishedRun) -> "pd.Series[float] | None":
    """Return the row of the history at the published step, or None if this step is within an epoch."""
    step = job.summary.get("published_step")
    if step is None:
        return job.history.iloc[-1]
    found = job.history[job.history["step"] == step]
    return None if found.empty else found.iloc[-1]


def provenance_facts(jobs: Sequence[FinishedRun]) -> list[tuple[str, str]]:
    """Return facts on code, files, hosts and times by name; if jobs differ in a fact, all its values are listed."""
    ranks = listing([str(count) for count in sorted({job.summary["ranks"] for job in jobs})])
    left_out = [what for job in jobs for what in job.summary.get("data", {}).get("left_out", [])]
    # Copies of the code are kept with each job.
    files = [
        f"{path} ({checksum[:8]}{f' in {RunPaths.code.name}/' if has_copy(path) else ''})"
        for job in jobs
        for path, checksum in job.input_checksums.items()
    ]
    # Times are UTC in ISO 8601, so that their alphabetical order is their order in time.
    started, finished = (
        sorted(str(job.summary[key]) for job in jobs if job.summary.get(key))
        for key in ("started", "finished")
    )
    span: list[tuple[str, str]] = []
    if started and finished:
        took = datetime.fromisoformat(finished[-1]) - datetime.fromisoformat(started[0])
        later = format_duration(took.total_seconds())
        span = [("started", started[0]), ("finished", f"{finished[-1]} ({later} later)")]
    rows = [
        ("code", _different(job.summary.get("code_version") for job in jobs)),
        ("user's files", _different(files)),
        ("left out of the data", _different(left_out)),
        ("hosts", _different(host for job in jobs for host in job.summary.get("hosts", []))),
        ("hardware", "; ".join(hardware_texts(job.summary.get("hardware", {}) for job in jobs))),
        ("training tasks", f"{len(jobs)}, with {ranks} rank{'' if ranks == '1' else 's'}"),
        *span,
        ("configuration", _different(job.summary.get("config_hash") for job in jobs)),
    ]
    return [(name, value) for name, value in rows if value]


def hardware_texts(hosts: Iterable[dict[str, dict[str, Any]]]) -> list[str]:
    """Return the distinct descriptions of hosts: processor, cores, memory and GPUs; `hosts`: by name, of each summary."""
    texts = []
    for name, host in (item for each in hosts for item in each.items()):
        threads, ranks = plural(host["threads"], "thread"), plural(host["ranks"], "rank")
        cores = f"{host['cores_available']} of {plural(host['cores'], 'core')}"
        gpus = "".join(f", {count} × {gpu}" for gpu, count in Counter(host["gpus"]).items())
        memory = format_bytes(host["memory_bytes"])
        texts.append(f"{name}: {host['cpu']}, {threads} of {ranks} on {cores}, {memory} memory{gpus}")
    return list(dict.fromkeys(texts))


def packages(jobs: Sequence[FinishedRun]) -> dict[str, str]:
    """Return the version of each package; if jobs differ, all versions are listed."""
    known = [job.summary.get("packages", {}) for job in jobs]
    return {key: _different(versions.get(key) for versions in known) for each in known for key in each}


def search_page(page: Path) -> str:
    """Return the address of the page of the search whose best.yaml is the experiment of a page; empty if there is none."""
    owner, _, is_best = page.absolute().parent.name.rpartition("-best")
    places = [f"../{owner}/{SEARCH_FOLDER}/{page.name}", f"../{owner}/{page.name}"]
    return next((each for each in places if owner and not is_best and (page.parent / each).exists()), "")


def _different(values: Iterable[object]) -> str:
    return ", ".join(dict.fromkeys(str(value) for value in values if value is not None))
