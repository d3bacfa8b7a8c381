"""Hardware of the hosts, compared with what the operating system says, and its place in the summary."""

import json
import re
import socket
from pathlib import Path

import pytest
from helpers.observed_training import watched

from nnlo_lib.train.observe.host_hardware import hardware_by_host, rank_hardware
from nnlo_lib.train.preemption import StopFlag
from nnlo_lib.train.rank import train_simulated


def rank(host, process=1, allowed=(0, 1), gpu=None):
    return {
        "host": host, "process": process, "cpu": "X", "cores": 16, "allowed": list(allowed), "threads": 2,
        "memory_bytes": 64, "gpu": gpu,
    }  # fmt: skip


def test_ranks_are_summed_by_host():
    """Cores and GPUs that several ranks share count once; ranks of one process share its threads."""
    first, second = {"name": "H200", "uuid": "a"}, {"name": "H200", "uuid": "b"}
    ranks = [
        rank("n1", 1, (0, 1), first), rank("n1", 2, (1, 2), first), rank("n2", 3, (5,), second), rank("n1", 4, (3,), second),
    ]  # fmt: skip
    found = hardware_by_host(ranks)
    assert list(found) == ["n1", "n2"]
    assert (found["n1"]["ranks"], found["n1"]["threads"], found["n1"]["cores_available"]) == (3, 6, 4)
    assert (found["n1"]["cores_per_rank"], found["n2"]["cores_per_rank"]) == ([1, 2], [1])
    assert (found["n1"]["gpus"], found["n2"]["gpus"]) == (["H200", "H200"], ["H200"])
    assert hardware_by_host([rank("n1"), rank("n1")])["n1"]["threads"] == 2


@pytest.mark.skipif(not Path("/proc/meminfo").exists(), reason="compares with /proc of Linux")
def test_a_rank_reports_its_own_host():
    found = rank_hardware("cpu")
    total = re.search(r"MemTotal:\s+(\d+) kB", Path("/proc/meminfo").read_text())[1]
    assert found["memory_bytes"] == 1024 * int(total)
    (text,) = re.findall(r"Cpus_allowed_list:\s*(.+)", Path("/proc/self/status").read_text())
    ranges = [list(map(int, part.split("-"))) for part in text.split(",")]
    assert found["allowed"] == [core for ends in ranges for core in range(ends[0], ends[-1] + 1)]
    assert found["gpu"] is None


def test_a_summary_has_hardware_flops_and_the_published_step(tmp_path, small_store):
    """Two simulated ranks on this host; the page reads these keys."""
    task = watched(tmp_path / "job", small_store, {}, ranks=2, train={"restore_best": "train_loss"})
    assert train_simulated(task, StopFlag())
    summary = json.loads((task.folder / "summary.json").read_text())
    (host,) = summary["hardware"]
    assert host == socket.gethostname()
    assert summary["hardware"][host]["ranks"] == 2
    flops = summary["model"]["flops"]
    # One pass through a classifier is all that a step of its training computes.
    assert flops["training"] == flops["forward"] + flops["backward"] > 0
    assert summary["published_step"] > 0
