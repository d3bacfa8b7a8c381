"""Trainings that fail do not keep the summary and the page of the others from being written."""

import json

import pytest
from helpers.html_page import check

pytestmark = pytest.mark.snakemake

# The checks before the start build the model outside of a rank, where it does not fail.
NET = """
import os

from torch import nn

def net(shape, classes):
    if "PMI_RANK" in os.environ and not os.path.exists("repaired"):
        raise RuntimeError("the layer has no width")
    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))
"""
BAD = {"model": {"name": "net.py:net", "args": {}}}
SETTINGS = {"parallel": {"ranks": 2}, "seeds": [0], "train": {"epochs": 1, "batch_size": 64}}


@pytest.fixture
def faulty(clone):
    """Return the clone with a network that fails in ranks until the file `repaired` exists."""
    (clone.folder / "net.py").write_text(NET)
    (clone.folder / "repaired").unlink(missing_ok=True)
    return clone


def rows(clone, name):
    return [(row["run"], row["seed"]) for row in clone.table(f"{name}/summary.csv")]


def page(clone, name):
    return " ".join(check(clone.results(name) / "report.html").text.split())


@pytest.mark.real
def test_a_failed_training_is_named_the_others_are_reported_and_the_same_command_trains_it(faulty):
    runs = {"good": {}, "bad": BAD}
    said = faulty.run(status=1, **SETTINGS, name="one", runs=runs)
    assert rows(faulty, "one") == [("good", "0")]
    error = "net.py:8 in net: RuntimeError: the layer has no width"
    assert "trainings without results: 1; results/one/report.html shows the others" in said
    assert f"results/one/bad/seed-0: bad input: {error}" in said
    shown = page(faulty, "one")
    assert "1 training task of 2 did not finish and is not part of this page: bad has 0 of 1." in shown
    assert shown.count(f"bad input: {error}") == 1
    assert "Last lines of logs/one/bad/seed-0/train.log" in shown

    model = faulty.results("one") / "good/seed-0/model.safetensors"
    trained = model.stat().st_mtime_ns
    (faulty.folder / "repaired").touch()
    faulty.run()
    assert rows(faulty, "one") == [("good", "0"), ("bad", "0")]
    assert "did not finish" not in page(faulty, "one")
    assert model.stat().st_mtime_ns == trained
    log = (faulty.folder / "logs/one/bad/seed-0/train.log").read_text()
    assert log.index("the layer has no width") < log.index("attempt 2; attempt 1 ended at step 0 (bad input)")


@pytest.mark.exhaustive
def test_a_partial_summary_is_written_again_after_an_edit_that_leaves_what_was_complete(faulty):
    """Snakemake has records of a complete summary with the row of seed 0 and ignores inputs that it knows."""
    one_seed = SETTINGS | {"name": "partial", "runs": {"bad": BAD}}
    (faulty.folder / "repaired").touch()
    faulty.run(**one_seed)
    (faulty.folder / "repaired").unlink()
    faulty.run(status=1, **one_seed | {"seeds": [0, 1]})
    assert rows(faulty, "partial") == [("bad", "0")]
    assert "1 training task of 2 did not finish and is not part of this page: bad has 1 of 2." in page(
        faulty, "partial"
    )
    faulty.run(**one_seed)
    assert rows(faulty, "partial") == [("bad", "0")]
    assert "did not finish" not in page(faulty, "partial")


@pytest.mark.exhaustive
def test_nothing_is_written_if_no_training_finished(faulty):
    said = faulty.run(status=1, **SETTINGS, name="none", runs={"bad": BAD})
    assert "trainings without results: 1; to train them, correct the cause" in said
    assert not (faulty.results("none") / "summary.csv").exists()
    assert not (faulty.results("none") / "report.html").exists()
    attempts = faulty.results("none") / "bad/seed-0/state/attempts.jsonl"
    assert json.loads(attempts.read_text())["reason"] == "user code"
