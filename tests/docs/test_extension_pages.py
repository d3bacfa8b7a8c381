"""The pages "write your own" work: their commands run on their files with the described results."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.document_blocks import EXTENSION_PAGES, blocks, write_files

pytestmark = [pytest.mark.processes, pytest.mark.long]


def follow(page: str, folder: Path) -> None:
    """Write the files of a page into the folder, and run its commands there."""
    write_files(EXTENSION_PAGES / f"{page}.md", folder)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for block in blocks(EXTENSION_PAGES / f"{page}.md"):
        if block.language == "sh":
            done = subprocess.run(
                ["bash", "-ec", block.text], cwd=folder, capture_output=True, text=True, check=False,
                env=os.environ | {"PATH": path},
            )  # fmt: skip
            assert done.returncode == 0, done.stdout + done.stderr


def last_epoch(folder: Path) -> dict[str, float]:
    """Return the last row of the only history below results/."""
    (history,) = folder.glob("results/*/*/seed-*/history.csv")
    with history.open() as file:
        return {key: float(value) for key, value in list(csv.DictReader(file))[-1].items() if value}


def evaluation(folder: Path) -> dict[str, float]:
    """Return the only evaluation below results/."""
    (path,) = folder.glob("results/*/*/seed-*/evaluation.json")
    return json.loads(path.read_text())


@pytest.mark.mpi
def test_algorithm(tmp_path):
    follow("algorithm", tmp_path)
    assert evaluation(tmp_path)["accuracy"] > 0.5, "chance is 0.1"
    assert (tmp_path / "results/majority/MajorityVote").is_dir(), "the run has the name of the class"


@pytest.mark.mpi
def test_compressor(tmp_path):
    follow("compressor", tmp_path)
    assert evaluation(tmp_path)["loss"] < 2.3, "ln 10 is chance"
    (summary,) = tmp_path.glob("results/*/*/seed-*/summary.json")
    sent = json.loads(summary.read_text())["bytes_sent"]["gradient"]
    steps, ranks, parameters = 3 * 41, 2, 563_722
    assert 0 < sent < 1.1 * steps * ranks * parameters, "a byte per value, where float32 has 4"


def test_problem(tmp_path):
    follow("problem", tmp_path)
    assert 0.7 < last_epoch(tmp_path)["train_coverage"] <= 1, (
        "the 0.9 quantile covers about 0.9 of the labels"
    )
    assert {"loss", "coverage"} <= evaluation(tmp_path).keys()


def test_reader(tmp_path):
    follow("reader", tmp_path)
    measured = evaluation(tmp_path)
    assert (measured["samples"], measured["accuracy"] > 0.8) == (36, True), (
        "178 wines, every fifth a test sample"
    )


def test_sampler(tmp_path):
    follow("sampler", tmp_path)
    follow_up = ["nnlo_lib.cli", "search", "around_best.yaml", "--replay"]
    replay = subprocess.run(
        [sys.executable, "-m", *follow_up], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert replay.returncode == 0, replay.stdout + replay.stderr
    assert len(list((tmp_path / "results/around-best/search/trials").glob("*.json"))) == 5


def test_pruner(tmp_path):
    follow("pruner", tmp_path)
    with (tmp_path / "results/threshold/search/trials.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 4
    assert {row["epochs"] for row in rows} == {"1", "3"}, "some trials were pruned, some were not"
    best = min(rows, key=lambda row: float(row["objective"]))
    assert best["epochs"] == "3"
