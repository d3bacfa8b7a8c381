"""Publication of a finished training: each declared output is written once, by atomic rename; the summary comes last."""

import json
import math
import os
import platform
import re
import resource
import shutil
import socket
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch
from safetensors.torch import save
from torch import nn

from nnlo_lib.core.atomic_file import atomic_write, file_sha256, with_checksum, without_nan
from nnlo_lib.core.installation import code_version
from nnlo_lib.core.process import process_age
from nnlo_lib.data.store.manifest import manifest_fingerprint
from nnlo_lib.data.training_moments import moments_of
from nnlo_lib.problems.gan import GanProblem
from nnlo_lib.state.attempts import SESSION_VARIABLE
from nnlo_lib.state.chrome_trace import write_chrome_trace
from nnlo_lib.state.published_results import publish_code
from nnlo_lib.state.resource_use import total_use
from nnlo_lib.topology.topology import build_topology
from nnlo_lib.train.evaluation.evaluate import draw_gan_samples
from nnlo_lib.train.model_summary import summarize_model, training_flops
from nnlo_lib.train.rank_context import RankContext
from nnlo_lib.train.resource_monitor import mean_and_max, merge_monitor_files
from nnlo_lib.train.trainer import Trainer
from nnlo_lib.train.validation_arrays import publish_validation_arrays

PROFILE_GLOB = "profile-*"
PACKAGES = ("nnlo", "torch", "numpy", "mpi4py", "mpich", "h5py", "snakemake", "pydantic", "safetensors")
# NNLO's keys are world:parent:ring, the ranks of a process in its communicators.
MASTER, WORKER = "0:0:-", "1:1:-"
KERAS_NAMES = {"accuracy": "acc"}  # names of Keras 2, which NNLO's scripts look up


def publish_training(trainer: Trainer, started: str, finished: str) -> None:
    """Write the outputs of a finished run on rank 0; all ranks call it."""
    context, recorder, device = trainer.context, trainer.recorder, trainer.context.device
    used = resource.getrusage(resource.RUSAGE_SELF)
    reports = context.comm.gather(
        {
            "host": socket.gethostname(),
            "seconds": context.phase_timer.seconds(),
            "traffic": context.phase_timer.traffic(),
            "hardware": rank_hardware(device),
            "used": {
                "memory_bytes": 1024 * used.ru_maxrss,
                "cpu_seconds": used.ru_utime + used.ru_stime,
                "seconds": process_age(),
                "gpu_memory_bytes": torch.cuda.max_memory_reserved(device)
                if device.startswith("cuda")
                else 0,
            },
            "counts": {kind: list(counts.items()) for kind, counts in trainer.algorithm.histograms().items()},
        }
    )
    # Only after the gather, in which all ranks take part.
    if context.comm.rank:
        return
    task, paths = context.task, context.task.paths
    _write_weights(paths.model, context.replica.module)
    with atomic_write(paths.partition) as part:
        shutil.copyfile(paths.state.partition, part)
    # A published run is not trained again, so a power failure must not damage its tables from now on.
    for table in recorder.tables.values():
        table.sync()
    recorder.history.publish(paths.history)
    # An earlier experiment in this folder may have written some of them.
    for path in (*paths.optional_outputs, *task.folder.glob(PROFILE_GLOB), paths.monitor):
        path.unlink(missing_ok=True)
    for table, path in ((recorder.nodes, paths.nodes), (recorder.validations, paths.validations)):
        if table.rows:
            table.publish(path)
    if isinstance(context.problem, GanProblem):
        draw_gan_samples(context.replica.module, paths.samples)
    if task.run.observe.nnlo_history:
        _write_nnlo_history(paths.nnlo_history, recorder.history.rows, task.run.shown)
    publish_code(paths)
    write_chrome_trace(task.observe_folder, paths.trace)
    for found in task.observe_folder.glob(PROFILE_GLOB):
        with atomic_write(task.folder / found.name) as part:
            shutil.copyfile(found, part)
    observations: dict[str, Any] = {}
    if any(task.observe_folder.glob("monitor-*.csv")):
        merge_monitor_files(task.observe_folder, paths.monitor)
        observations["monitor"] = mean_and_max(paths.monitor)
    steps = [row["step"] for row in recorder.validation_rows]
    publish_validation_arrays(task, steps, context.data.validation_set[1])
    trainer.journal.publish(paths.log)
    # The summary comes last, because it records the checksums of the other outputs.
    outputs = [*paths.outputs, *sorted(paths.folder.glob(PROFILE_GLOB))]
    checksums = {path.name: file_sha256(path) for path in outputs if path.exists()}
    summary = _summary(trainer, reports, started, finished)
    summary |= observations | {"outputs": checksums, "data": _data(context)}
    with atomic_write(paths.summary) as part:
        part.write_text(json.dumps(with_checksum(summary), indent=1))


def _write_weights(path: Path, module: nn.Module) -> None:
    tensors = {
        # Parameters are views of one vector; safetensors refuses tensors that share memory or are not contiguous.
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in module.state_dict().items()
    }
    with atomic_write(path) as part:
        part.write_bytes(save(tensors))


def _write_nnlo_history(path: Path, rows: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]) -> None:
    """Write `train_time`, `history` by process and `args` for scripts that plot NNLO's results.

    The master has the validation metrics. One worker has the training metrics, means over all workers,
    because nnlo measures them together. Names are Keras's, and values those of the rows that have them.
    """
    history: dict[str, dict[str, list[float]]] = {MASTER: {}, WORKER: {}}
    for row in rows:
        for column, value in row.items():
            split, _, name = column.partition("_")
            name = KERAS_NAMES.get(name, name)
            if split == "val":
                history[MASTER].setdefault(f"val_{name}", []).append(value)
            elif split == "train":
                history[WORKER].setdefault(name, []).append(value)
    seconds = rows[-1]["seconds"] if rows else 0.0
    with atomic_write(path) as part:
        content = {"train_time": seconds, "history": history, "args": dict(settings)}
        part.write_text(json.dumps(without_nan(content), indent=1))


@cache
def _package_versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that the numbers of a training depend on."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        # A job's environment may lack what only the workflow needs.
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def _summary(trainer: Trainer, reports: list[dict[str, Any]], started: str, finished: str) -> dict[str, Any]:
    """Return what was trained, with which code, where, how far and how fast, and at which cost."""
    context, task, run = trainer.context, trainer.context.task, trainer.context.task.run
    data, last = context.data, trainer.recorder.history.rows[-1]
    graph = (
        build_topology(run.topology, run.workers, task.stream_seed, run.data)
        if run.algorithm.capabilities.graph_properties
        else None
    )
    return {
        "experiment": task.experiment,
        "run": task.name,
        "seed": task.seed,
        "fold": task.fold,
        "folds": task.folds,
        "config": run.shown,
        "config_hash": run.hash,
        "code_version": code_version(),
        "input_files": task.input_checksums,
        "legs": trainer.position.legs,
        "packages": _package_versions(),
        "session": os.environ.get(SESSION_VARIABLE),
        "hosts": [report["host"] for report in reports],
        "hardware": hardware_by_host([report["hardware"] for report in reports]),
        "ranks": context.comm.size,
        "roles": context.roles,
        "model": _model(context),
        "epochs": last["epoch"],
        "steps": last["step"],
        "samples_seen": last["samples"],
        "training_samples": data.num_training_samples,
        "validation_samples": len(data.validation_set[1]),
        # One clock for the table, the time axis and the speed: the seconds in training steps.
        "training_seconds": last["seconds"],
        "samples_per_second": last["samples"] / last["seconds"],
        **_costs(reports),
        "used": total_use([report["hardware"] | report["used"] for report in reports]),
        "spectral_gap": graph.spectral_gap if graph else None,
        "effective_neighbors": graph.effective_neighbors if graph else None,
        "restarts": trainer.position.restarts,
        "paused_within_epoch": trainer.position.paused_within,
        "ended_early": trainer.position.over or None,
        "published_step": trainer.best_weights.step,
        "final": _final(trainer),
        "started": started,
        "finished": finished,
    }


def _costs(reports: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the seconds by phase, and the bytes and messages by purpose, from the reports of all ranks."""
    by_rank = [report["seconds"] for report in reports]
    traffic, counts = [report["traffic"] for report in reports], [report["counts"] for report in reports]
    return {
        "seconds": {phase: sum(rank[phase] for rank in by_rank) / len(by_rank) for phase in by_rank[0]},
        "seconds_by_rank": by_rank,
        "bytes_sent": _summed(each["bytes"] for each in traffic),
        "messages_sent": _summed(each["messages"] for each in traffic),
        # [sender, receiver, messages, bytes]
        "edges": [[rank, *edge] for rank, each in enumerate(traffic) for edge in each["edges"]],
        # For example the number of updates by staleness.
        "histograms": {
            kind: _summed(dict(rank.get(kind, ())) for rank in counts)
            for kind in dict.fromkeys(kind for rank in counts for kind in rank)
        },
    }


def _summed(counts: Iterable[Mapping[Any, int]]) -> dict[Any, int]:
    """Return the sums of the ranks' counts by key, in the order of the keys."""
    total = Counter[Any]()
    for each in counts:
        total.update(each)
    return dict(sorted(total.items()))


def _model(context: RankContext) -> dict[str, Any]:
    """Return the layers and the floating-point operations of a sample, in a forward pass and in training."""
    module, split, run = context.replica.module, context.data.split, context.task.run
    layers, (forward, backward) = summarize_model(module, context.made_up_sample)
    batch = context.preprocessor(*split.take(np.arange(min(2, len(split)))))
    # Networks of a GAN may train in some steps only.
    training = training_flops(module, context.problem, *batch, getattr(run.problem, "cycle", 1))
    return {
        "name": run.model.name,
        "parameters": context.replica.theta.numel(),
        "flops": {"forward": forward, "backward": backward, "training": training},
        "layers": layers,
    }


def _final(trainer: Trainer) -> dict[str, float]:
    """Return the last training metrics and the validation metrics of the published weights.

    If the replicas differ, the published weights are their mean, and the metrics of the replicas follow: mean
    over replicas, smallest and largest value.
    """
    last, own = trainer.recorder.history.rows[-1], trainer.published_metrics
    rows = trainer.recorder.validation_rows
    published = [row for row in rows if row["step"] == trainer.best_weights.step] or [last]
    trained = {name: value for name, value in last.items() if name.startswith("train_")}
    validated = {
        f"{name}_mean" if name in own else name: value
        for name, value in published[-1].items()
        if name.startswith("val_")
    }
    return trained | validated | own


def _data(context: RankContext) -> dict[str, Any]:
    task = context.task
    checksum, fingerprint = file_sha256(task.manifest), manifest_fingerprint(task.manifest)
    found: dict[str, Any] = {"manifest": str(task.manifest), "sha256": checksum, "fingerprint": fingerprint}
    if context.data.manifest.code:
        found["code"] = dict(context.data.manifest.code)
    if left_out := context.data.manifest.left_out:
        found["left_out"] = list(left_out)
    if task.normalizes_training_samples:
        # The model must get the same inputs later, when the held-out samples are not known.
        found["normalization"] = moments_of(context.data.normalized_manifest)
    split, samples = context.data.validation_set
    if len(samples) and task.run.loss == "binary_cross_entropy" and split.labels.ndim == 1:
        share = float(np.mean(split.labels[samples], dtype=np.float64))
        found["constant_loss"] = -sum(p * math.log(p) for p in (share, 1 - share) if p > 0)
    return found


def rank_hardware(device: str) -> dict[str, Any]:
    """Return host, process, processor, cores, threads, memory and GPU of this rank, on `device`."""
    cpus = ""
    with suppress(OSError):
        cpus = Path("/proc/cpuinfo").read_text()
    named = re.search(r"^model name\s*:\s*(.+)$", cpus, re.MULTILINE)
    # Only of a rank that computes on it: the query would occupy memory of every GPU.
    gpu = torch.cuda.get_device_properties(device) if device.startswith("cuda") else None
    return {
        "host": socket.gethostname(),
        "process": os.getpid(),
        "cpu": named[1] if named else platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "allowed": sorted(os.sched_getaffinity(0)),
        "threads": torch.get_num_threads(),
        "memory_bytes": psutil.virtual_memory().total,
        "gpu": {"name": gpu.name, "uuid": str(gpu.uuid)} if gpu else None,
    }


def hardware_by_host(reports: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the hardware of each host, in the order of the ranks.

    `cores` is the number of logical cores, `cores_available` of those on which the ranks may run;
    `cores_per_rank` has the numbers of cores to which a rank is bound; `threads` is the number of threads of all
    processes together; `gpus` has the name of each GPU that a rank uses.
    """
    hosts: dict[str, list[dict[str, Any]]] = {}
    for report in reports:
        hosts.setdefault(report["host"], []).append(report)
    return {
        host: {
            "cpu": ranks[0]["cpu"],
            "cores": ranks[0]["cores"],
            "cores_available": len({core for rank in ranks for core in rank["allowed"]}),
            "cores_per_rank": sorted({len(rank["allowed"]) for rank in ranks}),
            "ranks": len(ranks),
            # Simulated ranks share a process, and several ranks may share a GPU.
            "threads": sum({rank["process"]: rank["threads"] for rank in ranks}.values()),
            "memory_bytes": ranks[0]["memory_bytes"],
            "gpus": list(
                {rank["gpu"]["uuid"]: rank["gpu"]["name"] for rank in ranks if rank["gpu"]}.values()
            ),
        }
        for host, ranks in hosts.items()
    }
