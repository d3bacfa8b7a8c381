"""A run that fails for good in Slurm does not keep the summary and the page of the others from being written."""

import csv

import pytest
from helpers.html_page import check
from helpers.repository_copy import Checkout
from helpers.slurm_cluster import Slurm
from helpers.slurm_runs import edit, finish, last_words, start

pytestmark = [pytest.mark.slurm, pytest.mark.slow, pytest.mark.timeout(900)]

# The checks before the start build the model outside of a rank, where it does not fail. Slurm's PMI2 sets PMI_RANK.
NET = """
import os

from torch import nn

def net(shape, classes):
    ranked = {"PMI_RANK", "SLURM_STEP_ID"} & os.environ.keys()
    if ranked and not os.path.exists("repaired"):
        raise RuntimeError("the layer has no width")
    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))
"""
RUNS = {"good": {}, "bad": {"model": {"name": "net.py:net", "args": {}}}}


def test_a_run_that_fails_is_named_and_trained_after_the_repair(slurm: Slurm, checkout: Checkout) -> None:
    slurm.wait("all nodes are idle", slurm.idle)
    (checkout.folder / "net.py").write_text(NET)
    settings = {
        "runs": RUNS,
        "seeds": [1],
        "train": {"epochs": 1, "batch_size": 16},
        "parallel": {"ranks": 2},
    }
    edit(checkout, "failing", **settings, resources={"mem_mb": 1000, "runtime": 10})
    # Each retry of the profile would be a job that ends at once with the same error.
    process = start(slurm, checkout, "--configfile", "failing.yaml", "--preemptible-retries", "1")
    try:
        slurm.wait("Snakemake is done", lambda: process.poll() is not None)
    finally:
        process.kill()
    assert process.returncode == 1, last_words(checkout)
    said = (checkout.folder / "snakemake.log").read_text()
    assert "trainings without results: 1; results/failing/report.html shows the others" in said
    page = checkout.folder / "results/failing/report.html"
    shown = " ".join(check(page).text.split())
    assert "bad has 0 of 1." in shown
    assert "bad input: net.py:9 in net: RuntimeError: the layer has no width" in shown

    (checkout.folder / "repaired").touch()
    finish(slurm, checkout, start(slurm, checkout, "--configfile", "failing.yaml"), seconds=600)
    with (checkout.folder / "results/failing/summary.csv").open() as file:
        assert [row["run"] for row in csv.DictReader(file)] == ["good", "bad"]
    assert "did not finish" not in check(page).text
