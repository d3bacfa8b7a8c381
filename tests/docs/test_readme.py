"""The README is correct: its example runs, and its make targets and Snakemake commands exist."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from nnlo_lib.experiment.load import load_experiment
from nnlo_lib.workflow.plan import Plan

REPOSITORY = Path(__file__).parents[2]
README = (REPOSITORY / "README.md").read_text()
COMMANDS = [
    line.split("#")[0].strip()
    for block in re.findall(r"```sh\n(.*?)```", README, re.S)
    for line in block.splitlines()
]


def test_its_experiment_runs(tmp_path, monkeypatch):
    example, searched = re.findall(r"```yaml\n(.*?)```", README, re.S)
    (tmp_path / "mine.yaml").write_text(example)
    (tmp_path / "my_model.py").touch()
    monkeypatch.chdir(tmp_path)
    plan = Plan.of(load_experiment("mine.yaml"))
    assert {name: run.parallel.ranks for name, run in plan.runs.items()} == {"one": 1, "four": 4, "server": 5}
    assert len(plan.jobs) == 9
    Path("tuned.yaml").write_text(searched)
    assert len(load_experiment("tuned.yaml").search.space) == 3


@pytest.mark.processes
@pytest.mark.parametrize(
    "target", sorted({word for command in COMMANDS for word in re.findall(r"make (\w+)", command)})
)
def test_make_targets_exist(target):
    dry = subprocess.run(["make", "-n", target], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert dry.returncode == 0, dry.stderr


@pytest.mark.processes
@pytest.mark.parametrize("command", [c for c in COMMANDS if c.startswith("snakemake")])
def test_snakemake_commands_plan_the_dag(command):
    words = command.replace("mine.yaml", "config/experiments/mnist.yaml").split()[1:]
    dry = subprocess.run(
        [sys.executable, "-m", "snakemake", "--dry-run", *words],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert dry.returncode == 0, dry.stdout + dry.stderr
