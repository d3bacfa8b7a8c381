"""Trainings that fail do not keep the summary and the page of the others from being written."""

import csv
import json
from pathlib import Path

import pytest
from helpers.html_page import check
from helpers.repository_copy import Checkout, copy_checkout

pytestmark = [pytest.mark.slow, pytest.mark.snakemake, pytest.mark.timeout(900)]

# The checks before the start build the model outside of a rank, where it does not fail.
NET = """
import os

from torch import nn

def net(shape, classes):
    if "PMI_RANK" in os.environ and not os.path.exists("repaired"):
        raise RuntimeError("the layer has no width")
    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))
"""
RUNS = {"good": {}, "bad": {"model": {"name": "net.py:net", "args": {}}}}
SETTINGS = {"runs": RUNS, "parallel": {"ranks": 2}, "seeds": [0, 1], "train": {"epochs": 1, "batch_size": 64}}


@pytest.fixture(scope="module")
def failed(tmp_path_factory) -> tuple[Checkout, str]:
    """Return a checkout in which one of two runs failed, and the output of Snakemake."""
    checkout = copy_checkout(tmp_path_factory.mktemp("failed") / "checkout")
    (checkout.folder / "net.py").write_text(NET)
    checkout.experiment(**SETTINGS)
    run = checkout.snakemake()
    assert run.returncode == 1, run.stdout
    return checkout, run.stdout


def rows(checkout: Checkout) -> list[tuple[str, str]]:
    with (checkout.folder / "results/tiny/summary.csv").open() as file:
        return [(row["run"], row["seed"]) for row in csv.DictReader(file)]


def page(checkout: Checkout) -> str:
    return " ".join(check(checkout.folder / "results/tiny/report.html").text.split())


def trained_at(checkout: Checkout) -> dict[str, int]:
    files = Path(checkout.folder / "results/tiny").glob("good/*/model.safetensors")
    return {str(file): file.stat().st_mtime_ns for file in files}


def test_what_failed_is_named_and_trained_by_the_same_command(failed):
    checkout, said = failed
    assert rows(checkout) == [("good", "0"), ("good", "1")]
    error = "net.py:8 in net: RuntimeError: the layer has no width"
    assert "trainings without results: 2; results/tiny/report.html shows the others" in said
    assert f"results/tiny/bad/seed-0: bad input: {error}" in said
    shown = page(checkout)
    assert "2 training tasks of 4 did not finish and are not part of this page: bad has 0 of 2." in shown
    assert shown.count(f"bad input: {error}") == 2
    assert "Last lines of logs/tiny/bad/seed-1/train.log" in shown

    before = trained_at(checkout)
    (checkout.folder / "repaired").touch()
    run = checkout.snakemake()
    assert run.returncode == 0, run.stdout
    assert rows(checkout) == [(name, seed) for name in RUNS for seed in "01"]
    assert "did not finish" not in page(checkout)
    assert trained_at(checkout) == before
    log = (checkout.folder / "logs/tiny/bad/seed-0/train.log").read_text()
    assert log.index("the layer has no width") < log.index("attempt 2; attempt 1 ended at step 0 (bad input)")
    assert "Nothing to be done" in checkout.snakemake("--dry-run").stdout


def test_a_partial_summary_is_written_again_after_an_edit_that_leaves_what_was_complete(tmp_path):
    checkout = copy_checkout(tmp_path / "checkout")
    (checkout.folder / "net.py").write_text(NET)
    (checkout.folder / "repaired").touch()
    one_seed = SETTINGS | {"runs": {"bad": RUNS["bad"]}, "seeds": [0]}
    checkout.experiment(**one_seed)
    assert checkout.snakemake().returncode == 0
    # Snakemake has records of a complete summary with the row of seed 0 and ignores inputs that it knows.
    (checkout.folder / "repaired").unlink()
    checkout.experiment(**one_seed | {"seeds": [0, 1]})
    assert checkout.snakemake().returncode == 1
    assert rows(checkout) == [("bad", "0")]
    assert "1 training task of 2 did not finish and is not part of this page: bad has 1 of 2." in page(
        checkout
    )
    checkout.experiment(**one_seed)
    run = checkout.snakemake()
    assert run.returncode == 0, run.stdout
    assert rows(checkout) == [("bad", "0")]
    assert "did not finish" not in page(checkout)


def test_nothing_is_written_if_no_training_finished(tmp_path):
    checkout = copy_checkout(tmp_path / "checkout")
    (checkout.folder / "net.py").write_text(NET)
    checkout.experiment(**SETTINGS | {"runs": {"bad": RUNS["bad"]}, "seeds": [0]})
    run = checkout.snakemake()
    assert run.returncode == 1
    assert "trainings without results: 1; to train them, correct the cause" in run.stdout
    assert not (checkout.folder / "results/tiny/summary.csv").exists()
    assert not (checkout.folder / "results/tiny/report.html").exists()
    attempts = checkout.folder / "results/tiny/bad/seed-0/state/attempts.jsonl"
    assert json.loads(attempts.read_text())["reason"] == "bad input"
