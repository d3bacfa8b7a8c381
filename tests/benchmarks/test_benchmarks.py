"""Every benchmark runs with `--quick` (smallest sizes, one repetition) from the repository root."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.requires import absent
from helpers.slurm_cluster import missing

REPOSITORY = Path(__file__).parents[2]
STARTED_BY_OTHERS = {"peers.py"}  # throughput.py and models.py start it as a child process
NEED_REAL_DATA = {"data.py", "decentralized.py", "models.py", "throughput.py"}
NEED_SLURM = {"job_latency.py"}
TIMEOUT_S = 800  # most benchmarks take less than 10 s on two idle cores
BENCHMARKS = [
    path.name
    for path in sorted((REPOSITORY / "benchmarks").glob("*.py"))
    if re.search(r'^if __name__ == "__main__":', path.read_text(), re.MULTILINE)
    and path.name not in STARTED_BY_OTHERS
]


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_quick_benchmark_prints_figures(name, request):
    if name in NEED_REAL_DATA:
        request.getfixturevalue("shared_data")
    if name in NEED_SLURM and (programs := missing()):
        absent(f"{', '.join(programs)} not found")
    done = subprocess.run(
        [sys.executable, f"benchmarks/{name}", "--quick"], cwd=REPOSITORY, capture_output=True, text=True,
        timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip()
