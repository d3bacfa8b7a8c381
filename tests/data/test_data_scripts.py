"""The scripts and commands that the workflow's rules run to fetch and convert a data set."""

import json
import subprocess
import sys

import pytest
from helpers.nnlo_command import REPOSITORY, nnlo, refused

from nnlo_lib.data.store.manifest import DataManifest


@pytest.mark.processes
def test_digits_from_nothing_to_a_store(tmp_path):
    raw, store = tmp_path / "raw", tmp_path / "hdf5"
    for words in (
        f"fetch.py --dataset digits --target {raw}",
        f"convert.py --dataset digits --raw {raw} --target {store}",
    ):
        script, *options = words.split()
        command = [sys.executable, REPOSITORY / "scripts" / script, *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    assert json.loads((raw / "fetched.json").read_text())["source"] == "sklearn/datasets/data"
    DataManifest.load(store / "manifest.json").verify()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("fetch --dataset digit --target raw", "did you mean 'digits'"),
        ("fetch --dataset mnist --target raw --source nowhere", "in nowhere"),
        (
            "convert --dataset mnist --raw nowhere --target store",
            "nowhere/train-images-idx3-ubyte.gz: file not found",
        ),
    ],
)
def test_mistakes_are_sentences(tmp_path, arguments, message):
    assert message in refused(nnlo("task", *arguments.split(), folder=tmp_path))
    assert not list(tmp_path.rglob("*.*"))
