"""GPUs of an experiment reach bsub for each rule, as `nnlo plan --profile lsf` has printed; LSF is a stand-in."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from helpers.lsf_cluster import Lsf
from helpers.nnlo_command import nnlo
from helpers.repository_copy import Checkout

ROOT = Path(__file__).parents[2]
WORKFLOW = Path(__file__).parent / "gpu_workflow" / "Snakefile"
EXPERIMENT = {
    "name": "gpus",
    "seeds": [1],
    "runs": {
        "four": {
            "parallel": {"ranks": 4, "gpus_per_rank": 1, "threads_per_rank": 2},
            "resources": {"nodes": 2, "partition": "normal"},
        },
        "one": {"parallel": {"ranks": 1, "gpus_per_rank": 1}, "resources": {"partition": "normal"}},
    },
}


@pytest.fixture(scope="module")
def folder(lsf: Lsf, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run a workflow in a folder with the profiles of a clone, and return the folder."""
    folder = tmp_path_factory.mktemp("clone")
    for name in ("profiles", "lsf"):
        (folder / name).symlink_to(ROOT / name)
    (folder / "gpus.yaml").write_text(yaml.safe_dump(EXPERIMENT))
    command = [Path(sys.executable).with_name("snakemake"), "--snakefile", WORKFLOW, "--profile", "lsf"]
    done = subprocess.run(
        command, cwd=folder, env=lsf.environment, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder


def request(lsf: Lsf, rule: str) -> list[str]:
    """Return the slots, the span and the GPUs with which the job of a rule was submitted."""
    (job,) = lsf.jobs(f"rule_{rule}")
    asked = job.request
    return [asked["n"], asked["R"][-1], asked["gpu"]]


@pytest.mark.slow
@pytest.mark.snakemake
def test_each_rule_asks_for_its_gpus_per_host(lsf: Lsf, folder: Path) -> None:
    assert request(lsf, "train:") == ["8", "span[ptile=4]", "num=2:j_exclusive=yes"]
    assert request(lsf, "train_single") == ["1", "span[hosts=1]", "num=1:j_exclusive=yes"]
    assert request(lsf, "evaluate") == ["1", "span[hosts=1]", "num=1:j_exclusive=yes"]
    assert request(lsf, "fold_task") == ["8", "span[ptile=4]", "num=2:j_exclusive=yes"]


@pytest.mark.slow
@pytest.mark.snakemake
def test_plan_prints_what_is_asked(lsf: Lsf, folder: Path) -> None:
    printed = nnlo("plan", "gpus.yaml", "--profile", "lsf", folder=folder).stdout
    for label, rule in (("four", "train:"), ("one", "train_single"), ("four, evaluation", "evaluate")):
        (line,) = (line for line in printed.splitlines() if line.startswith(f"  run {label}: "))
        words = shlex.split(line)
        slots, span, gpus = request(lsf, rule)
        assert words[words.index("-n") + 1] == slots
        assert words[words.index("-R") + 1] == span
        assert words[words.index("-gpu") + 1] == gpus


@pytest.mark.slow
def test_a_cluster_refuses_automatic_gpus_before_the_first_job(lsf: Lsf, checkout: Checkout) -> None:
    checkout.experiment(parallel={"gpus_per_rank": "auto"}, runs={})
    command = [Path(sys.executable).with_name("snakemake"), "--profile", "lsf", "--configfile", "tiny.yaml"]
    done = subprocess.run(
        command,
        cwd=checkout.folder,
        env=lsf.environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 2
    assert "parallel.gpus_per_rank: auto counts the GPUs of this host" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list((checkout.folder / "data").glob("*"))
