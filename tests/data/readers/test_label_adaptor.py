"""Labels that a function of the user changes before the reader takes them as classes or numbers."""

import h5py
import numpy as np
import pytest

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.readers.base import read

# As in NNLO's examples from physics: one-hot rows are columns -6..-2 of a larger table.
MODULE = """
import numpy as np
def columns(y): return y[:, -6:-1]
def rounded(y): return y[:, 0] if len(y) <= 2 else y[:, 0].astype(int)
def halved(y): return y[:, 0] / 2
def fewer(y): return y[:1] if len(y) > 1 else y[:0]
def words(y): return np.array(["a"] * len(y))
def get_train(): return ["one.h5", "two.h5"]
def get_val(): return ["three.h5"]
def get_features(): return "tracks", lambda x: x * 2
def get_labels(): return "jets", lambda y: y[:, -6:-1]
"""
CLASSES = {"one.h5": [4, 0, 3, 1], "two.h5": [2, 2, 1], "three.h5": [2, 1]}
KEYS = {"features": "tracks", "labels": "jets"}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(MODULE)
    for name, classes in CLASSES.items():
        rows = np.zeros((len(classes), 9), np.float32)
        rows[:, 0] = np.arange(len(classes)) + 0.5
        rows[np.arange(len(classes)), np.array(classes) + 3] = 1
        with h5py.File(tmp_path / name, "w") as file:
            file["tracks"], file["jets"] = np.ones((len(classes), 2), np.float32), rows
    monkeypatch.chdir(tmp_path)
    return tmp_path


def labels_of(folder, **options):
    contents = read("arrays", folder, 3, options)
    blocks = [unit.read() for unit in contents.units if unit.split == "train"]
    return contents, np.concatenate([block.labels for block in blocks]).tolist(), blocks


def test_a_module_may_return_a_key_and_a_function_for_labels(folder):
    contents, labels, blocks = labels_of(folder, train="mine.py")
    assert (contents.classes, labels) == (5, [4, 0, 3, 1, 2, 2, 1])
    assert all((each.inputs[0] == 2).all() for each in blocks)
    assert {unit.split for unit in contents.units} == {"train", "validation"}


def test_an_experiment_may_name_the_function_for_classes_or_numbers(folder):
    contents, labels, _ = labels_of(folder, train=list(CLASSES)[:2], label_adaptor="mine.py:columns", **KEYS)
    assert (contents.classes, labels) == (5, [4, 0, 3, 1, 2, 2, 1])
    contents, labels, _ = labels_of(
        folder, train="one.h5", label_adaptor="mine.py:halved", one_hot=False, **KEYS
    )
    assert (contents.classes, labels) == (None, [0.25, 0.75, 1.25, 1.75])


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("mine.py:rounded", r"one\.h5: the label adaptor mine\.py:rounded returned samples of \(\) int64 from sample 0"),
        ("mine.py:fewer", r"one\.h5: the label adaptor mine\.py:fewer returned \(1, 9\) float32 for 2 samples"),
        ("mine.py:words", r"one\.h5: the label adaptor mine\.py:words returned \(2,\) <U1 .* 1 array\(s\) of numbers"),
        ("mine.py:missing", r"one\.h5: the label adaptor mine\.py:missing failed: AttributeError"),
        ("other.py:f", r"data\.reader\.label_adaptor: file not found: other\.py"),
    ],
)  # fmt: skip
def test_a_function_that_returns_no_labels_is_named(folder, function, message):
    with pytest.raises(UserError, match=message):
        labels_of(folder, train="one.h5", label_adaptor=function, **KEYS)


def test_a_module_whose_labels_are_no_pair_is_named(folder):
    (folder / "mine.py").write_text(MODULE + 'def get_labels():\n    return "jets", "columns"\n')
    with pytest.raises(UserError, match=r"get_labels\(\) of mine\.py returned \('jets', 'columns'\)"):
        labels_of(folder, train="mine.py")
