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


def _is_program(path: Path) -> bool:
    return bool(re.search(r'^if __name__ == "__main__":', path.read_text(), re.MULTILINE))


BENCHMARKS = [
    path.name
    for path in sorted((REPOSITORY / "benchmarks").glob("*.py"))
    if _is_program(path) and path.name not in STARTED_BY_OTHERS
]


def test_the_benchmarks_are_found():
    assert len(BENCHMARKS) >= 10


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.parametrize("name", BENCHMARKS)
def test_runs_quick(name, request):
    if name in NEED_REAL_DATA:
        request.getfixturevalue("shared_data")
    if name in NEED_SLURM and (programs := missing()):
        absent(f"{', '.join(programs)} not found")
    command = [sys.executable, f"benchmarks/{name}", "--quick"]
    done = subprocess.run(
        command, cwd=REPOSITORY, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip(), "prints no figures"
