"""Publish a finished training: the declared outputs, each written once, by rename."""

import json
import platform
import shutil
import socket
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save

from nnlo_lib.config.validity import needs
from nnlo_lib.data.atomic import replacing
from nnlo_lib.data.manifest import sha256
from nnlo_lib.problems.gan import GanProblem
from nnlo_lib.topology.topology import topology
from nnlo_lib.train.code_version import code_version
from nnlo_lib.train.data import PARTITION
from nnlo_lib.train.measure import samples
from nnlo_lib.train.observe.described import described
from nnlo_lib.train.observe.observed import MONITOR, PROFILES, publish_observed
from nnlo_lib.train.task import Task
from nnlo_lib.train.training import Training

PACKAGES = ("nnlo", "torch", "numpy", "mpi4py", "mpich", "h5py", "snakemake", "pydantic", "safetensors")

OPTIONAL = ("nodes.csv", "validations.csv", samples.SHEET)
OUTPUTS = ("model.safetensors", PARTITION, "history.csv", *OPTIONAL, "trace.json", "log.txt")


def publish(training: Training, started: str, finished: str) -> None:
    """Write model.safetensors, partition.npz, history.csv, summary.json, trace.json and log.txt from rank 0; all ranks call it."""
    reports = training.comm.gather(
        {
            "host": socket.gethostname(),
            "seconds": training.stopwatch.seconds(),
            "traffic": training.stopwatch.traffic(),
            "counts": {kind: list(counts.items()) for kind, counts in training.algorithm.counts().items()},
        }
    )
    if training.comm.rank:
        return
    folder = training.task.folder
    tensors = {name: tensor.detach().cpu() for name, tensor in training.replica.module.state_dict().items()}
    with replacing(folder / "model.safetensors") as part:
        part.write_bytes(
            save(
                {
                    name: tensor.clone(memory_format=torch.contiguous_format)
                    for name, tensor in tensors.items()
                }
            )
        )
    with replacing(folder / PARTITION) as part:
        shutil.copyfile(training.task.state / PARTITION, part)
    training.books.history.publish(folder / "history.csv")
    for name in OPTIONAL:  # of another experiment before
        (folder / name).unlink(missing_ok=True)
    if training.books.nodes.rows:
        training.books.nodes.publish(folder / "nodes.csv")
    if training.books.validations.rows:
        training.books.validations.publish(folder / "validations.csv")
    if isinstance(training.problem, GanProblem):
        samples.draw(training.replica.module, folder / samples.SHEET)
    seen = publish_observed(training.task)
    training.journal.publish(folder / "log.txt")
    summary = _summary(training, reports, started, finished)
    _write(
        folder / "summary.json",
        summary | seen | {"outputs": _checksums(folder), "data": _data(training.task)},
    )


def _summary(
    training: Training, reports: list[dict[str, Any]], started: str, finished: str
) -> dict[str, Any]:
    task, last = training.task, training.books.history.rows[-1]
    by_rank = [report["seconds"] for report in reports]
    return {
        "experiment": task.experiment,
        "run": task.name,
        "seed": task.seed,
        "fold": task.fold,
        "config": task.run.model_dump(mode="json"),
        "config_hash": task.run.hash,
        "code_version": code_version(),
        "legs": training.legs,
        "packages": {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}},
        "hosts": [report["host"] for report in reports],
        "ranks": training.comm.size,
        "roles": training.roles,
        "model": {
            "name": task.run.model.name,
            "parameters": training.replica.theta.numel(),
            **described(training.replica.module, training.tensors.blank()).summary,
        },
        "epochs": last["epoch"],
        "steps": last["step"],
        "samples_seen": last["samples"],
        "samples_per_second": last["samples"] / last["seconds"],
        "seconds": {phase: sum(rank[phase] for rank in by_rank) / len(by_rank) for phase in by_rank[0]},
        "seconds_by_rank": by_rank,
        "bytes_sent": _total([report["traffic"]["bytes"] for report in reports]),
        "messages_sent": _total([report["traffic"]["messages"] for report in reports]),
        "edges": [
            [rank, *edge] for rank, report in enumerate(reports) for edge in report["traffic"]["edges"]
        ],  # from, to, messages, bytes
        "histograms": _histograms([report["counts"] for report in reports]),
        "spectral_gap": _spectral_gap(task, training.comm.size),
        "restarts": training.restarts,
        "ended_early": training.over or None,
        "published_step": training.best.step,
        "final": _final(training),
        "started": started,
        "finished": finished,
    }


def _final(training: Training) -> dict[str, float]:
    """Return what was last measured while training, and what validation measured of the weights that are published."""
    last = training.books.history.rows[-1]
    published = [row for row in training.books.validated if row["step"] == training.best.step] or [last]
    trained = {name: value for name, value in last.items() if name.startswith("train_")}
    return trained | {name: value for name, value in published[-1].items() if name.startswith("val_")}


def _checksums(folder: Path) -> dict[str, str]:
    names = [*OUTPUTS, MONITOR, *sorted(path.name for path in folder.glob(PROFILES))]
    return {name: sha256(folder / name) for name in names if (folder / name).exists()}


def _data(task: Task) -> dict[str, str]:
    return {"manifest": str(task.manifest), "sha256": sha256(task.manifest)}


def _total(counts: list[dict[str, int]]) -> dict[str, int]:
    purposes = sorted({purpose for count in counts for purpose in count})
    return {purpose: sum(count.get(purpose, 0) for count in counts) for purpose in purposes}


def _histograms(counts: list[dict[str, list[tuple[int, int]]]]) -> dict[str, dict[int, int]]:
    """Add up the ranks' histograms, such as how many updates were how stale."""
    totals: dict[str, Counter[int]] = {}
    for rank in counts:
        for kind, histogram in rank.items():
            totals.setdefault(kind, Counter()).update(Counter(dict(histogram)))
    return {kind: dict(sorted(total.items())) for kind, total in totals.items()}


def _spectral_gap(task: Task, nodes: int) -> float | None:
    """Return how fast the run's graph forgets differences; nothing where there is no graph."""
    if not needs(task.run.algorithm).graph:
        return None
    return topology(task.run.topology, nodes, task.seed).spectral_gap


def _write(path: Path, content: dict[str, Any]) -> None:
    with replacing(path) as part:
        part.write_text(json.dumps(content, indent=1))
