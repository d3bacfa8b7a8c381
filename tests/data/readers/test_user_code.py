"""Adaptors, readers and data modules of the user: their errors, sys.exit() included, name the file and the line."""

import h5py
import numpy as np
import pytest
from helpers.nnlo_command import nnlo, refused

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.readers.base import read

CODE = """import sys
import numpy as np
from functools import partial
from nnlo_lib import DatasetContents, contents_of_arrays
from nnlo_lib.data.readers import ConversionUnit, SampleBlock
def leave(x): sys.exit(0)
def get_train(): raise SystemExit('no files')
def at_once(folder, shard_size): sys.exit(3)
def later(folder, shard_size): return DatasetContents((ConversionUnit('train', 'train-00000-of-00001', folder, partial(sys.exit, 'bye')),))
def failing(folder, shard_size): return [][1]
def nothing(folder, shard_size): return None
def words(folder, shard_size): return contents_of_arrays({'train': (np.zeros((2, 1)), np.array(['a', 'b']))}, folder, shard_size)
def uneven(folder, shard_size): return contents_of_arrays({'train': (np.zeros((3, 1)), np.zeros(2))}, folder, 100)
"""
ADAPTORS = """
import numpy as np
def scale(x): return x / 2
def swap(x): return x[1], x[0].astype(np.float32)
def as_list(x): return [x[1], x[0]]
def fail(x): raise ValueError('no such column')
def drop(x): return x[:-1]
def twice(x): return x, x
def words(x): return np.array(['a'] * len(x))
def single(x): return 3.0
def ragged(x): return np.zeros((len(x), len(x)))
"""


@pytest.fixture
def code(tmp_path):
    (tmp_path / "mine.py").write_text(CODE)
    np.savez(tmp_path / "part.npz", features=np.zeros((4, 2)), labels=np.arange(4))
    return tmp_path / "mine.py"


@pytest.mark.processes
def test_a_conversion_in_processes_whose_adaptor_exits_fails(code, tmp_path):
    """sys.exit(0) in an adaptor ended the command with status 0 and no store."""
    reader = f'{{"name": "arrays", "train": "part.npz", "adaptor": "{code}:leave"}}'
    options = (
        f"--dataset mine --raw {tmp_path} --target {tmp_path}/store --format npz --shard-size 2 --processes 2"
    )
    assert "leave failed" in refused(nnlo("task", "convert", *options.split(), "--reader", reader))


def test_a_data_module_that_exits_is_named(code, tmp_path):
    with pytest.raises(UserError, match=r"data\.reader\.train: .*mine\.py failed: .*mine\.py:7\b"):
        read("arrays", tmp_path, 10, {"train": str(code)})


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("at_once", r"mine\.py:at_once failed: .*SystemExit: 3"),
        ("later", r"mine\.py:later failed: SystemExit: bye"),
        ("failing", r"mine\.py:failing failed: .*IndexError: list index out of range"),
        ("nothing", r"mine\.py:nothing returned NoneType; it must return nnlo_lib\.DatasetContents"),
        ("words", r"train-00000-of-00001 of .*:words read the arrays \(2, 1\) float64, \(2,\) <U1; .* of numbers"),
        ("uneven", r"3 samples, but 2 labels in the train split"),
    ],
)  # fmt: skip
def test_a_reader_that_fails_is_named(code, tmp_path, function, message):
    with pytest.raises(UserError, match=message):
        _ = [unit.read() for unit in read(f"{code}:{function}", tmp_path, 10, {}).units]


def test_a_masked_argument_is_not_passed_on(code, tmp_path):
    """The settings of a finished run have no tokens, with which its reader would fetch other data."""
    message = r"data\.reader\.args\.token: has \*\*\* in place of a secret, which is not stored; name the experiment file"
    with pytest.raises(UserError, match=message):
        read(f"{code}:at_once", tmp_path, 10, {"token": "hf_***"})


@pytest.fixture
def adapted(tmp_path):
    """Return a function that reads two files of 3 and 4 samples as one shard through an adaptor."""
    (tmp_path / "mine.py").write_text(ADAPTORS)
    for number, samples in enumerate((3, 4)):
        values = np.arange(samples * 2.0).reshape(samples, 2)
        with h5py.File(tmp_path / f"part{number}.h5", "w") as file:
            file["features"], file["X/a"], file["X/b"] = values, values, values[:, 0]
            file["labels"] = np.arange(samples)

    def run(function, **options):
        options = {"train": "part*.h5", "adaptor": f"{tmp_path}/mine.py:{function}"} | options
        (unit,) = read("arrays", tmp_path, 10, options).units
        return unit.read().inputs

    return run


def test_an_adaptor_is_given_one_array(adapted):
    (features,) = adapted("scale")
    assert features.tolist() == [[0, 0.5], [1, 1.5], [2, 2.5], [0, 0.5], [1, 1.5], [2, 2.5], [3, 3.5]]


@pytest.mark.parametrize("function", ["swap", "as_list"])
def test_an_adaptor_is_given_a_tuple_of_several(adapted, function):
    first, second = adapted(function, features="X")
    assert first.tolist() == [0, 2, 4, 0, 2, 4, 6]
    assert second.shape == (7, 2)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("fail", r"part0\.h5: the adaptor .*mine\.py:fail failed: .*mine\.py:6 in fail: ValueError: no such column"),
        ("none", r"part0\.h5: the adaptor .*mine\.py:none failed: AttributeError"),
        ("drop", r"part0\.h5: .*drop returned \(2, 2\) float64 for 3 samples; it must return 1 .* with 3 rows"),
        ("twice", r"returned \(3, 2\) float64, \(3, 2\) float64 for 3 samples; it must return 1 array"),
        ("words", r"returned \(3,\) <U1 for 3 samples; it must return 1 array\(s\) of numbers"),
        ("single", r"returned \(1,\) float64"),
        ("ragged", r"part1\.h5: .* samples of \(4,\) float64, but of \(3,\) float64 for .*part0\.h5"),
    ],
)  # fmt: skip
def test_a_wrong_result_of_an_adaptor_is_named(adapted, function, message):
    with pytest.raises(UserError, match=message):
        adapted(function)


def test_a_missing_or_broken_file_of_an_adaptor_is_named(adapted, tmp_path):
    (tmp_path / "broken.py").write_text("import nnlo_has_no_such_module\n")
    message = r"part0\.h5: .*broken\.py:f failed: .*broken\.py:1 in <module>: ModuleNotFoundError"
    with pytest.raises(UserError, match=message):
        adapted("", adaptor=f"{tmp_path}/broken.py:f")
    with pytest.raises(UserError, match=r"data\.reader\.adaptor: file not found: .*lost\.py"):
        adapted("", adaptor=f"{tmp_path}/lost.py:f")
