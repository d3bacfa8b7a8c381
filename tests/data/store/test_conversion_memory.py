"""The memory of a conversion is one shard."""

import tracemalloc

import h5py
import numpy as np
import pytest
from helpers.conversions import own_conversion

from nnlo_lib.data.store.convert import convert

SHARD_BYTES = 100_000_000  # read and written in blocks of 16 MB


def save(folder, kind, name, values):
    """Write the samples; return the names of the files."""
    labels = np.arange(len(values)) % 2
    if kind == "hdf5":
        with h5py.File(folder / f"{name}.h5", "w") as file:
            file["features"], file["labels"] = values, labels
        return f"{name}.h5"
    if kind == "npy":
        np.save(folder / f"{name}.npy", values)
        np.save(folder / f"{name}-labels.npy", labels)
        return f"{name}.npy {name}-labels.npy"
    np.savez_compressed(folder / f"{name}.npz", features=values, labels=labels)
    return f"{name}.npz"


@pytest.mark.parametrize(
    ("kind", "format", "options", "dtype"),
    [
        ("hdf5", "hdf5", {}, "f4"),
        ("npy", "hdf5", {"channels": "last"}, "f4"),
        ("compressed npz", "npz", {"dtype": "float32"}, "f8"),
    ],
)
def test_a_conversion_holds_one_shard(tmp_path, kind, format, options, dtype):
    """Two files are read into one shard; before, memory of two to three shards was needed."""
    image = np.zeros((1, 25, 25, 40 // np.dtype(dtype).itemsize), dtype)
    images = np.broadcast_to(image, (SHARD_BYTES // 2 // image.nbytes, *image.shape[1:]))
    reader = {"name": "arrays", "train": [save(tmp_path, kind, name, images) for name in "xy"]} | options
    job = own_conversion(tmp_path, tmp_path / "store", format, 10**9, reader)
    tracemalloc.start()
    convert(job)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    stored = SHARD_BYTES // 2 if "dtype" in options else SHARD_BYTES
    assert 0.9 * stored < peak < 1.5 * stored
