"""`snakemake --profile slurm`, as a user runs it, survives preemption; the trainer is a stand-in."""

import contextlib
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.slurm_cluster import Slurm

pytestmark = [pytest.mark.slurm, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
SCRATCH = Path(__file__).parent / "stand_in_workflow" / "Snakefile"


@contextlib.contextmanager
def snakemake(slurm: Slurm, folder: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run Snakemake in a folder with the profiles of a clone; interrupt it if the test ends first."""
    for name in ("profiles", "slurm"):
        (folder / name).symlink_to(ROOT / name)
    command = [
        Path(sys.executable).with_name("snakemake"),
        "--snakefile",
        SCRATCH,
        "--profile",
        "slurm",
        *options,
    ]
    with (folder / "snakemake.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, env=slurm.environment, stdout=log, stderr=log)
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
                process.wait(60)


def test_a_preempted_training_on_two_nodes_is_requeued_and_resumes(slurm: Slurm, tmp_path: Path) -> None:
    result = tmp_path / "results" / "many" / "summary.json"
    journal = result.parent / "state" / "log"
    with snakemake(
        slurm, tmp_path, str(result.relative_to(tmp_path)), "--config", "nodes=2", "steps=80"
    ) as process:
        slurm.wait("the training runs", journal.exists)
        slurm.run(
            "sbatch", "--partition=high", "--nodes=3", "--exclusive", "--output=/dev/null", "--wrap=true"
        )
        said = (tmp_path / "snakemake.log").read_text
        slurm.wait("Snakemake is done", lambda: process.poll() is not None)
        assert process.returncode == 0, said()
    events = "\n".join(json.loads(result.read_text())["log"])
    assert re.findall(r"rank 0 of 2 on n\d starts at (\d+)", events)[0] == "0"
    saved = re.findall(r"rank 0 of 2 on n\d saved at (\d+)", events)
    assert len(set(re.findall(r"on (n\d) starts at 0", events))) == 2
    assert re.findall(r"rank \d of 2 on n\d starts at ([1-9]\d*)", events) == saved * 2
    assert "Trying to restart" not in said()
