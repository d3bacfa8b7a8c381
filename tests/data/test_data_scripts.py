"""The scripts that the workflow's rules run to fetch and convert a data set."""

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from nnlo_lib.data.store.manifest import DataManifest

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[2]


def run(script, *arguments):
    command = [sys.executable, ROOT / "scripts" / script, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


def cpu_seconds_of_children():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def test_digits_from_nothing_to_a_store(tmp_path):
    before = cpu_seconds_of_children()
    done = run("fetch.py", "--dataset", "digits", "--target", tmp_path / "raw")
    assert done.returncode == 0, done.stderr
    assert cpu_seconds_of_children() - before < 2  # torch alone takes longer
    assert json.loads((tmp_path / "raw" / "fetched.json").read_text())["source"] == "sklearn/datasets/data"
    done = run("convert.py", "--dataset", "digits", "--raw", tmp_path / "raw", "--target", tmp_path / "hdf5")
    assert done.returncode == 0, done.stderr
    DataManifest.load(tmp_path / "hdf5" / "manifest.json").verify()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("fetch.py", "--dataset", "digit", "--target", "raw"), "did you mean 'digits'"),
        (("fetch.py", "--dataset", "mnist", "--target", "raw", "--source", "nowhere"), "in nowhere"),
        (
            ("convert.py", "--dataset", "mnist", "--raw", "nowhere", "--target", "store"),
            "nowhere/train-images-idx3-ubyte.gz: file not found",
        ),
    ],
)
def test_mistakes_are_sentences(tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    done = run(*arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.rglob("*.*"))
