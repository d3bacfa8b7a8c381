"""Names of folders, files and options with characters of the shell reach the commands of the workflow unchanged."""

import csv
import sys

import pytest
import yaml
from helpers.html_page import check
from helpers.repository_copy import copy_checkout

pytestmark = pytest.mark.snakemake

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


@pytest.fixture(scope="module")
def snakemake(tmp_path_factory):
    """Return a function that runs Snakemake in a hostile folder, with an environment there, on a hostile file."""
    root = tmp_path_factory.mktemp("hostile")
    checkout = copy_checkout(root / HOSTILE)
    (checkout.folder / ".venv").symlink_to(sys.prefix)
    (checkout.folder / f"{HOSTILE}.py").write_text(NET)

    def run(**changes):
        (checkout.folder / f"{HOSTILE}.yaml").write_text(yaml.safe_dump(SETTINGS | changes, sort_keys=False))
        done = checkout.snakemake(file=f"{HOSTILE}.yaml", python=checkout.folder / ".venv/bin/python")
        assert done.returncode == 0, done.stdout
        assert sorted(root.rglob(MARK)) == []
        return checkout.folder / "results"

    return run


@pytest.mark.real
def test_the_workflow_runs_with_names_that_a_shell_would_execute(snakemake):
    results = snakemake(runs=RUNS) / "tiny.v-1"
    with (results / "summary.csv").open() as file:
        assert [row["run"] for row in csv.DictReader(file)] == [*RUNS]
    assert "a.b-1" in check(results / "report.html").text


@pytest.mark.exhaustive
def test_a_search_runs_with_names_that_a_shell_would_execute(snakemake):
    search = {"space": {"train.optimizer.lr": [0.01, 0.1]}, "method": {"name": "grid"}, "folds": {"k": 1}}
    results = snakemake(name="searched", search=search) / "searched"
    assert (results / "best/seed-0/evaluation.json").exists()
    assert (results / "report.html").exists()
