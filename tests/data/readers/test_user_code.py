"""Errors of the user's adaptors, readers and data modules, sys.exit() included, name the file and the line."""

import subprocess
import sys

import numpy as np
import pytest
from helpers.conversions import own_conversion

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.readers import read
from nnlo_lib.data.store.convert import convert

CODE = """import sys
import numpy as np
from functools import partial
from nnlo_lib import DatasetContents, contents_of_arrays
from nnlo_lib.data.readers import ConversionUnit, SampleBlock
def leave(x):
    sys.exit(0)
def get_train():
    raise SystemExit('no files')
def at_once(folder, shard_size):
    sys.exit(3)
def later(folder, shard_size):
    return DatasetContents((ConversionUnit('train', 'train-00000-of-00001', folder, partial(sys.exit, 'bye')),))
def failing(folder, shard_size):
    return [][1]
def nothing(folder, shard_size):
    return None
def words(folder, shard_size):
    return contents_of_arrays({'train': (np.zeros((2, 1)), np.array(['a', 'b']))}, folder, shard_size)
def uneven(folder, shard_size):
    return contents_of_arrays({'train': (np.zeros((3, 1)), np.zeros(2))}, folder, 100)
"""


@pytest.fixture
def code(tmp_path):
    (tmp_path / "mine.py").write_text(CODE)
    np.savez(tmp_path / "part.npz", features=np.zeros((4, 2)), labels=np.arange(4))
    return tmp_path / "mine.py"


@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.processes)])
def test_an_adaptor_that_exits_is_named(code, tmp_path, processes):
    reader = {"name": "arrays", "train": "part.npz", "adaptor": f"{code}:leave"}
    job = own_conversion(tmp_path, tmp_path / "store", "npz", 2, reader)
    with pytest.raises(UserError, match=r"part\.npz: the adaptor .*mine\.py:leave failed: .*mine\.py:7\b"):
        convert(job, processes)


def test_a_data_module_that_exits_is_named(code, tmp_path):
    with pytest.raises(UserError, match=r"data\.reader\.train: .*mine\.py failed: .*mine\.py:9\b"):
        read("arrays", tmp_path, 10, {"train": str(code)})


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("at_once", r"mine\.py:at_once failed: .*SystemExit: 3"),
        ("later", r"mine\.py:later failed: SystemExit: bye"),
        ("failing", r"mine\.py:failing failed: .*IndexError: list index out of range"),
        ("nothing", r"mine\.py:nothing returned NoneType; it must return nnlo_lib\.DatasetContents"),
        (
            "words",
            r"train-00000-of-00001 of .*:words read the arrays \(2, 1\) float64, \(2,\) <U1; .* of numbers",
        ),
        ("uneven", r"3 samples, but 2 labels in the train split"),
    ],
)
def test_a_reader_that_fails_is_named(code, tmp_path, function, message):
    with pytest.raises(UserError, match=message):
        _ = [unit.read() for unit in read(f"{code}:{function}", tmp_path, 10, {}).units]


@pytest.mark.processes
def test_a_conversion_whose_adaptor_exits_fails(code, tmp_path):
    """sys.exit(0) in an adaptor ended the command with status 0 and no store."""
    reader = f'{{"name": "arrays", "train": "part.npz", "adaptor": "{code}:leave"}}'
    command = [
        sys.executable,
        "-m",
        "nnlo_lib.cli",
        "task",
        "convert",
        "--dataset",
        "mine",
        "--raw",
        str(tmp_path),
    ]
    options = ["--target", str(tmp_path / "store"), "--format", "npz", "--reader", reader]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "leave failed" in done.stderr
    assert "Traceback" not in done.stderr
