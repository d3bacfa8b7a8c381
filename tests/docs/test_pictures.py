"""Each picture of the documentation belongs to its source as it is now; docs/images/bytes.svg also to its table of numbers."""

import hashlib
import json
import sys
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest
from helpers.document_blocks import REPOSITORY
from helpers.nnlo_command import nnlo_process

with patch.object(sys, "path", [str(REPOSITORY / "benchmarks"), *sys.path]):
    from figures import IMAGES, SOURCES, bytes_sent, digest_of, draw_bytes
    from studies import STUDIES, Study, draw

RECORDED = json.loads(SOURCES.read_text())


def fault(name: str, source: Path) -> str:
    """Return what is wrong with a picture, or an empty text."""
    known = RECORDED[name]
    if known["source_digest"] != digest_of(source):
        return f"{name}: {source.name} has changed since; make the picture again by the command beside it"
    if known["picture_digest"] != hashlib.sha256((IMAGES / name).read_bytes()).hexdigest()[:16]:
        return f"{name}: not the recorded picture; benchmarks/figures.py --record PICTURE SOURCE after it was made again"
    return ""


def test_each_picture_is_recorded_with_its_source_as_it_is():
    pictures = {path.relative_to(IMAGES) for suffix in ("svg", "png") for path in IMAGES.rglob(f"*.{suffix}")}
    assert set(RECORDED) == {str(each) for each in pictures}
    assert [text for name in RECORDED if (text := fault(name, REPOSITORY / RECORDED[name]["source"]))] == []


def test_each_picture_is_shown():
    pages = [REPOSITORY / "README.md", *(REPOSITORY / "docs").rglob("*.md")]
    text = "".join(page.read_text() for page in pages)
    assert [name for name in RECORDED if f"images/{name})" not in text] == []


def test_an_edited_experiment_is_found_and_a_comment_is_none(tmp_path):
    experiment = (IMAGES / "bytes.yaml").read_text()
    (tmp_path / "bytes.yaml").write_text("# A comment.\n" + experiment)
    assert fault("bytes.svg", tmp_path / "bytes.yaml") == ""
    (tmp_path / "bytes.yaml").write_text(experiment.replace("sync_every: 10", "sync_every: 5"))
    assert "bytes.yaml has changed since" in fault("bytes.svg", tmp_path / "bytes.yaml")


def test_the_figure_of_bytes_is_that_of_its_table(tmp_path):
    draw_bytes(IMAGES / "bytes.csv", tmp_path)
    assert (tmp_path / "bytes.svg").read_bytes() == (IMAGES / "bytes.svg").read_bytes()


@pytest.mark.parametrize("name", [file.stem for file in STUDIES.glob("*.yaml")])
def test_the_figure_of_a_study_is_that_of_its_table(name, tmp_path):
    picture = f"studies/{name}.svg"
    (tmp_path / "studies").mkdir()
    draw(Study(name, None, quick=False), pd.read_csv(IMAGES / f"studies/{name}.csv"), tmp_path / picture)
    assert (tmp_path / picture).read_bytes() == (IMAGES / picture).read_bytes()


@pytest.mark.exhaustive
@pytest.mark.processes
def test_the_command_gives_the_table_of_bytes(tmp_path):
    """With the first seed, and a tolerance for other processors."""
    for run in ("allreduce", "easgd", "choco_sgd", "average", "gosgd"):
        done = nnlo_process("run", str(IMAGES / "bytes.yaml"), "--run", run, "--seed", "1", folder=tmp_path)
        assert done.returncode == 0, done.stderr
    bytes_sent(tmp_path / "results/bytes", tmp_path)
    shown = pd.read_csv(IMAGES / "bytes.csv").query("seed == 1").reset_index(drop=True)
    again = pd.read_csv(tmp_path / "bytes.csv")
    assert again[["run", "epoch"]].equals(shown[["run", "epoch"]])
    np.testing.assert_allclose(again["bytes"], shown["bytes"], rtol=0.02)
    last = shown["epoch"] == shown["epoch"].max()
    np.testing.assert_allclose(again["val_accuracy"][last], shown["val_accuracy"][last], atol=0.05)
