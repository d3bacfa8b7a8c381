"""Names of folders, files and options with characters of the shell reach the commands of the workflow unchanged."""

import csv
import sys
from pathlib import Path

import pytest
import yaml
from helpers.html_page import check
from helpers.repository_copy import Checkout, copy_checkout

pytestmark = [pytest.mark.slow, pytest.mark.snakemake, pytest.mark.timeout(900)]

# An unquoted name would create this file in the working folder.
MARK = "ran"
HOSTILE = f"a b'c $(touch {MARK}) `touch {MARK}`;touch {MARK};\"é"
NET = """
from torch import nn

def net(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))
"""
SETTINGS = {
    "name": "tiny.v-1",
    "model": {"name": f"{HOSTILE}.py:net"},
    "train": {"epochs": 1, "batch_size": 256},
    "resources": {"partition": HOSTILE, "account": HOSTILE},
}
# As regular expressions, each of these names matches the other, but the trainings belong to different rules.
RUNS = {"a.b-1": {"parallel": {"ranks": 2}}, "a-b-1": {"parallel": {"ranks": 1}}}


def hostile_checkout(folder: Path) -> tuple[Checkout, Path]:
    """Return a checkout, and the Python interpreter of an environment, in a folder with a hostile name."""
    checkout = copy_checkout(folder / HOSTILE)
    (checkout.folder / ".venv").symlink_to(sys.prefix)
    (checkout.folder / f"{HOSTILE}.py").write_text(NET)
    return checkout, checkout.folder / ".venv/bin/python"


def write(checkout: Checkout, **changes: object) -> str:
    """Write the experiment into a file with a hostile name; return the name."""
    name = f"{HOSTILE}.yaml"
    (checkout.folder / name).write_text(yaml.safe_dump(SETTINGS | changes, sort_keys=False))
    return name


def executed_names(folder: Path) -> list[Path]:
    """Return the files that commands in names have created."""
    return sorted(folder.rglob(MARK))


def test_the_workflow_runs_with_names_that_a_shell_would_execute(tmp_path):
    checkout, python = hostile_checkout(tmp_path)
    run = checkout.snakemake(file=write(checkout, runs=RUNS), python=python)
    assert run.returncode == 0, run.stdout
    results = checkout.folder / "results/tiny.v-1"
    with (results / "summary.csv").open() as file:
        assert [row["run"] for row in csv.DictReader(file)] == [*RUNS]
    assert "a.b-1" in check(results / "report.html").text
    assert executed_names(tmp_path) == []
    assert "Nothing to be done" in checkout.snakemake(file=write(checkout, runs=RUNS), python=python).stdout


def test_a_search_runs_with_names_that_a_shell_would_execute(tmp_path):
    checkout, python = hostile_checkout(tmp_path)
    search = {"space": {"train.optimizer.lr": [0.01, 0.1]}, "method": {"name": "grid"}, "folds": {"k": 1}}
    run = checkout.snakemake(file=write(checkout, search=search), python=python)
    assert run.returncode == 0, run.stdout
    results = checkout.folder / "results/tiny.v-1"
    assert (results / "best/seed-0/evaluation.json").exists()
    assert (results / "report.html").exists()
    assert executed_names(tmp_path) == []


def test_braces_in_the_name_of_an_input_file_are_refused(tmp_path):
    checkout = copy_checkout(tmp_path / "checkout")
    (checkout.folder / "{net}.py").write_text(NET)
    for file, settings in (("{x}.yaml", {}), ("plain.yaml", {"model": {"name": "{net}.py:net"}})):
        (checkout.folder / file).write_text(yaml.safe_dump(settings))
        run = checkout.snakemake("--dry-run", file=file)
        assert run.returncode == 2, run.stdout
        assert "Snakemake takes text in braces for a wildcard; rename the file" in run.stdout
        assert "Traceback" not in run.stdout
