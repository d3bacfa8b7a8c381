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


def test_the_experiments_are_valid(tmp_path, monkeypatch):
    example, searched = re.findall(r"```yaml\n(.*?)```", README, re.S)
    (tmp_path / "mine.yaml").write_text(example)
    (tmp_path / "tuned.yaml").write_text(searched)
    (tmp_path / "my_model.py").touch()
    monkeypatch.chdir(tmp_path)
    plan = Plan.of(load_experiment("mine.yaml"))
    assert {name: run.parallel.ranks for name, run in plan.runs.items()} == {"one": 1, "four": 4, "server": 5}
    assert len(plan.jobs) == 9
    assert len(load_experiment("tuned.yaml").search.space) == 3


@pytest.mark.real
@pytest.mark.snakemake
def test_make_targets_and_snakemake_commands_exist(checkout):
    """Dry runs, in a clone because Snakemake writes its own records even then."""
    snakemake = [command for command in COMMANDS if command.startswith("snakemake")]
    assert snakemake
    for target in sorted({word for command in COMMANDS for word in re.findall(r"make (\w+)", command)}):
        check(["make", "-n", target], REPOSITORY)
    for command in snakemake:
        words = command.replace("mine.yaml", "config/experiments/mnist.yaml").split()[1:]
        check([sys.executable, "-m", "snakemake", "--dry-run", *words], checkout.folder)


def check(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
