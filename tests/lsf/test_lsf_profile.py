"""`snakemake --profile lsf` with a stand-in for LSF: its commands run jobs here and keep their state in a folder."""

import subprocess
import sys
from pathlib import Path

import pytest
from helpers.lsf_cluster import Lsf

ROOT = Path(__file__).parents[2]
SCRATCH = ROOT / "tests" / "slurm" / "stand_in_workflow" / "Snakefile"


@pytest.fixture(scope="module")
def folder(lsf: Lsf, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run both trainings in a folder with the profiles of a clone, and return the folder."""
    folder = tmp_path_factory.mktemp("clone")
    for name in ("profiles", "lsf"):
        (folder / name).symlink_to(ROOT / name)
    command = [Path(sys.executable).with_name("snakemake"), "--snakefile", SCRATCH, "--profile", "lsf"]
    command += ["results/many/summary.json", "results/one/summary.json", "--config", "ranks=3"]
    variables = lsf.environment | {"UCX_TLS": "self,sm,tcp"}
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    return folder


def request(lsf: Lsf, rule: str) -> str:
    """Return the options with which a rule's job was submitted."""
    (job,) = lsf.jobs(f"rule_{rule}:")
    return (job.folder / "request").read_text()


@pytest.mark.slow
def test_the_ranks_run_and_are_asked_for_as_slots(lsf: Lsf, folder: Path) -> None:
    assert "rank 2 of 3" in (folder / "results" / "many" / "summary.json").read_text()
    asked = request(lsf, "train")
    assert " -n 3 " in asked
    assert " -R span[ptile=" in asked
    assert " -P mine -q normal -W 5 " in asked
    assert " -r -wa URG -wt 2 " in asked


@pytest.mark.slow
def test_one_rank_needs_no_mpi(lsf: Lsf, folder: Path) -> None:
    assert "rank 0 of 1" in (folder / "results" / "one" / "summary.json").read_text()
    asked = request(lsf, "train_single")
    assert " -n 1 " in asked
    assert " -R span[hosts=1] -r -wa URG -wt 2 " in asked
