"""The README, docs/index.md and docs/start name commands, profiles and make targets that exist, in a clone and after `nnlo init`."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.document_blocks import REPOSITORY, SHELL, blocks

from nnlo_lib.config.algorithm import ALGORITHMS
from nnlo_lib.experiment.load import load_experiment
from nnlo_lib.workflow.plan import Plan
from nnlo_lib.workflow.whole_experiment import write_folder

README = REPOSITORY / "README.md"
PAGES = [README, REPOSITORY / "docs/index.md", *sorted((REPOSITORY / "docs/start").glob("*.md"))]
COMMANDS = [
    line.split("#")[0].strip()
    for block in blocks(README)
    if block.language in SHELL
    for command in block.commands
    for line in command.splitlines()
]


def test_the_experiment_has_six_lines_and_six_trainings(tmp_path):
    (example,) = (block for block in blocks(README) if block.title == "mine.yaml")
    assert len(example.text.splitlines()) == 6
    (tmp_path / "mine.yaml").write_text(example.text)
    assert len(Plan.of(load_experiment(tmp_path / "mine.yaml")).jobs) == 6


def test_the_number_of_algorithms():
    counts = [re.findall(r"(\d+) (?:distributed )?algorithms", page.read_text()) for page in PAGES]
    assert {number for found in counts for number in found} == {str(len(ALGORITHMS))}


def test_one_word_for_a_profile_in_a_clone_and_after_init(tmp_path):
    write_folder(tmp_path)
    for page in PAGES:
        for name in re.findall(r"--profile[ =]([\w/.-]*\w)", page.read_text()):
            assert name in ("local", "slurm", "lsf"), f"{page.name}: --profile {name}"
            for folder in (REPOSITORY, tmp_path):
                assert (folder / name / "config.yaml").is_file()


def test_two_commands():
    assert {"make run", "make test"} <= set(COMMANDS)
    assert len(README.read_text().splitlines()) < 100, "two screens"


@pytest.mark.real
@pytest.mark.snakemake
def test_make_targets_and_profiles_exist(checkout):
    """Dry runs, in a clone because Snakemake writes its own records even then."""
    for target in sorted({word for command in COMMANDS for word in re.findall(r"make (\w+)", command)}):
        check(["make", "-n", target], REPOSITORY)
    for profile in ("local", "slurm"):
        words = ["--profile", profile, "--configfile", "config/experiments/mnist.yaml"]
        check([sys.executable, "-m", "snakemake", "--dry-run", *words], checkout.folder)


def check(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
