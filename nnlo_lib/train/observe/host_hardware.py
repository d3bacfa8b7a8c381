"""Hardware of the hosts of a training, as its ranks see it."""

import os
import platform
import re
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import torch


def rank_hardware(device: str) -> dict[str, Any]:
    """Return host, process, processor, cores, threads, memory and GPU of this rank, JSON-serializable.

    Args:
        device: device of the rank, `cpu` or `cuda:N`.
    """
    return {
        "host": socket.gethostname(),
        "process": os.getpid(),
        "cpu": _processor(),
        "cores": os.cpu_count(),
        "allowed": sorted(os.sched_getaffinity(0)),
        "threads": torch.get_num_threads(),
        "memory_bytes": psutil.virtual_memory().total,
        "gpu": _gpu(device),
    }


def hardware_by_host(ranks: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the hardware of each host, in the order of the ranks.

    `cores` is the number of logical cores, `cores_available` of those on which the ranks may run;
    `cores_per_rank` has the numbers of cores to which a rank is bound; `threads` computes in all processes together; `gpus` has the name of each GPU that a rank uses.

    Args:
        ranks: results of `rank_hardware` of all ranks.
    """
    hosts = dict.fromkeys(rank["host"] for rank in ranks)
    return {host: _host([rank for rank in ranks if rank["host"] == host]) for host in hosts}


def _host(ranks: Sequence[dict[str, Any]]) -> dict[str, Any]:
    # Simulated ranks share a process, and several ranks may share a GPU.
    threads = {rank["process"]: rank["threads"] for rank in ranks}
    gpus = {rank["gpu"]["uuid"]: rank["gpu"]["name"] for rank in ranks if rank["gpu"]}
    return {
        "cpu": ranks[0]["cpu"],
        "cores": ranks[0]["cores"],
        "cores_available": len({core for rank in ranks for core in rank["allowed"]}),
        "cores_per_rank": sorted({len(rank["allowed"]) for rank in ranks}),
        "ranks": len(ranks),
        "threads": sum(threads.values()),
        "memory_bytes": ranks[0]["memory_bytes"],
        "gpus": list(gpus.values()),
    }


def _processor() -> str:
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1] if found else platform.processor() or platform.machine()


def _gpu(device: str) -> dict[str, str] | None:
    # Only of a rank that computes on it: the query would occupy memory of every GPU.
    if not device.startswith("cuda"):
        return None
    found = torch.cuda.get_device_properties(device)
    return {"name": found.name, "uuid": str(found.uuid)}
