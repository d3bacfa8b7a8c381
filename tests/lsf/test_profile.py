"""`snakemake --profile lsf` against a stand-in for LSF: commands that run a job here and keep its state in a folder."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRATCH = ROOT / "tests" / "slurm" / "scratch" / "Snakefile"
STANDIN = Path(__file__).parent / "standin"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of both trainings, in a folder that has what a clone has at its root."""
    folder = tmp_path_factory.mktemp("lsf")
    for name in ("profiles", "lsf"):
        (folder / name).symlink_to(ROOT / name)
    search = os.pathsep.join([str(STANDIN), os.environ["PATH"]])
    environment = os.environ | {"LSF_STANDIN": str(folder / "standin"), "PATH": search}
    environment |= {"LSB_DEFAULTPROJECT": "mine", "UCX_TLS": "self,sm,tcp"}
    command = [Path(sys.executable).with_name("snakemake"), "--snakefile", SCRATCH, "--profile", "lsf"]
    command += ["results/many/summary.json", "results/one/summary.json", "--config", "ranks=3"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    return folder


def request(folder: Path, rule: str) -> str:
    """Return the options with which a rule's job was submitted."""
    requests = [path.read_text() for path in (folder / "standin").glob("*/request")]
    return next(text for text in requests if f"rule_{rule}:" in text)


@pytest.mark.slow
def test_the_ranks_run_and_are_asked_for_as_slots(folder: Path) -> None:
    assert "rank 2 of 3" in (folder / "results" / "many" / "summary.json").read_text()
    asked = request(folder, "train")
    assert " -n 3 " in asked
    assert " -R span[ptile=" in asked
    assert " -P mine -q normal -W 5 " in asked


@pytest.mark.slow
def test_one_rank_needs_no_mpi(folder: Path) -> None:
    assert "rank 0 of 1" in (folder / "results" / "one" / "summary.json").read_text()
    asked = request(folder, "train_single")
    assert " -n 1 " in asked
    assert " -R span[hosts=1]" in asked
