"""Types of the features in the files and in the store."""

import numpy as np
import pytest
import torch
from helpers.conversions import own_conversion

from nnlo_lib.config.data import DataConfig
from nnlo_lib.core.errors import UserError
from nnlo_lib.data.describe import describe
from nnlo_lib.data.readers.base import read
from nnlo_lib.data.store.convert import convert
from nnlo_lib.data.store.split import Split
from nnlo_lib.train.replica.preprocess import Preprocessor


def stored(folder, features, format="npz", **options):
    """Convert features in two files, in shards of 3 samples."""
    for name, values in {"a": features[:2], "b": features[2:]}.items():
        np.savez(folder / f"{name}.npz", features=values, labels=np.arange(len(values)) % 2)
    reader = {"name": "arrays", "train": ["a.npz", "b.npz"]} | options
    return convert(own_conversion(folder, folder / "store", format, 3, reader))


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        ("?", "float32"), ("i1", "float32"), ("i2", "float32"), ("u2", "float32"), (">i2", "float32"),
        ("i4", "float64"), ("u4", "float64"), ("i8", "float64"), ("u8", "float64"),
        ("u1", "uint8"), ("f2", "float16"), ("f4", "float32"), ("f8", "float64"),
    ],
)  # fmt: skip
def test_every_type_is_trained_on(tmp_path, dtype, expected):
    features = np.array([[0, 1, 1], [1, 0, 0], [1, 1, 0], [0, 0, 1]], dtype)
    manifest = stored(tmp_path, features, "npz" if dtype == "u1" else "hdf5")
    (column,) = manifest.inputs
    assert column.dtype == expected
    native = np.dtype(dtype).newbyteorder("=")
    note = f"features is {native} in the files and {expected} in the store"
    assert manifest.notes == (() if native == np.dtype(expected) else (note,))
    assert all(f"note      {note}" in describe(manifest, {}) for note in manifest.notes)
    inputs, labels = Split(manifest, "train").take(np.arange(4))
    assert inputs[0].tolist() == features.astype(expected).tolist()
    (values,), _ = Preprocessor(manifest, DataConfig(normalize="standard"), "cpu")(inputs, labels)
    assert torch.nn.Linear(3, 2)(values).shape == (4, 2)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "uint8", "int32", "int64"])
def test_the_type_can_be_set(tmp_path, dtype):
    manifest = stored(tmp_path, np.arange(12).reshape(4, 3), dtype=dtype)
    assert manifest.inputs[0].dtype == dtype
    inputs, labels = Split(manifest, "train").take(np.arange(4))
    (values,), _ = Preprocessor(manifest, DataConfig(), "cpu")(inputs, labels)
    if dtype.startswith("int"):
        assert values.dtype == getattr(torch, dtype)
        assert torch.nn.Embedding(12, 2)(values).shape == (4, 3, 2)
    else:
        assert values.dtype == torch.float32


@pytest.mark.parametrize(
    ("value", "wanted", "shown"),
    [(300, "uint8", "300"), (-1, "uint8", "-1"), (0.5, "int64", "0.5"), (np.nan, "int32", "nan"),
     (1e6, "float16", "1000000.0"), (2**40, "int32", str(2**40)), (1e300, "float32", "1e[+]300")],
)  # fmt: skip
def test_a_value_that_the_type_cannot_hold_is_named(tmp_path, value, wanted, shown):
    features = np.zeros((4, 2), type(value))
    features[3, 1] = value
    message = rf"b\.npz: features of sample 1 has the value {shown}, which {wanted} cannot hold"
    with pytest.raises(UserError, match=message):
        stored(tmp_path, features, dtype=wanted)


def test_files_of_several_types_are_one_type_in_the_store(tmp_path):
    for number, dtype in enumerate(("f4", "f8", "i2", "?")):
        np.savez(tmp_path / f"{number}.npz", features=np.ones((2, 2), dtype), labels=np.arange(2))
    (unit,) = read("arrays", tmp_path, 10, {"train": "*.npz", "dtype": "float32"}).units
    assert unit.read().inputs[0].dtype == np.float32
    with pytest.raises(UserError, match=r"1\.npz: the file has features \(2,\) float64, but .*0\.npz has"):
        read("arrays", tmp_path, 10, {"train": "*.npz"})
