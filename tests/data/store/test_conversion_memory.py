"""Size of shards in bytes, and memory of a conversion: one shard."""

import gzip
import json
import struct
import subprocess
import sys

import h5py
import numpy as np
import pytest

from nnlo_lib.data import readers
from nnlo_lib.data.readers import read, shard_ranges

pytestmark = pytest.mark.processes

MEASURE = """
import json, resource, sys
from pathlib import Path
from nnlo_lib.data.store.conversion import Conversion
from nnlo_lib.data.store.convert import convert
from nnlo_lib.data.identity.store_settings import StoreSettings

def peak(format, **reader):
    folder = Path(sys.argv[1])
    target = folder / f"store-{reader['train'][0].split('.')[0]}"
    settings = StoreSettings("mine", None, {"name": "arrays"} | reader, format, 10**9)
    convert(Conversion(settings, folder, target))
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

small, large, options, format = json.loads(sys.argv[2])
before = peak(format, train=small, **options)
print(peak(format, train=large, **options) - before)
"""
MB = 1_000_000
SHARD = 100 * MB  # read and written in blocks of 16 MB


def save(folder, kind, name, values):
    labels = np.arange(len(values)) % 2
    if kind == "hdf5":
        with h5py.File(folder / f"{name}.h5", "w") as file:
            file["features"], file["labels"] = values, labels
        return [f"{name}.h5"]
    if kind == "npy":
        np.save(folder / f"{name}.npy", values)
        np.save(folder / f"{name}-labels.npy", labels)
        return [f"{name}.npy {name}-labels.npy"]
    (np.savez_compressed if kind == "compressed npz" else np.savez)(
        folder / f"{name}.npz", features=values, labels=labels
    )
    return [f"{name}.npz"]


def images(samples, dtype):
    return np.zeros((samples, 25, 25, 8 // np.dtype(dtype).itemsize * 5), dtype)


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "format", "options", "dtype"),
    [
        ("hdf5", "hdf5", {}, "f4"),
        ("npz", "npz", {}, "f4"),
        ("npy", "hdf5", {"channels": "last"}, "f4"),
        ("compressed npz", "npz", {"dtype": "float32"}, "f8"),
    ],
)
def test_a_conversion_holds_one_shard(tmp_path, kind, format, options, dtype):
    """Two files are read into one shard; before, memory of two to three shards was needed."""
    samples = SHARD // 2 // images(1, dtype).nbytes
    large = [
        *save(tmp_path, kind, "x", images(samples, dtype)),
        *save(tmp_path, kind, "y", images(samples, dtype)),
    ]
    small = save(tmp_path, kind, "small", images(2, dtype))
    stored = SHARD if "dtype" not in options else SHARD // 2
    arguments = json.dumps([small, large, options, format])
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(tmp_path), arguments], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 1.5 * stored


def test_a_shard_has_at_most_so_many_bytes():
    size = readers.MAX_SHARD_BYTES // 10
    assert [end - start for _, start, end in shard_ranges("train", 25, 10_000, size)] == [10, 10, 5]
    assert len(shard_ranges("train", 25, 4, size)) == 7
    assert len(shard_ranges("train", 3, 10_000, 100 * size)) == 3  # a shard has at least one sample


@pytest.mark.parametrize("reader", ["arrays", "idx", "cifar", "folder"])
def test_readers_limit_the_bytes_of_a_shard(tmp_path, monkeypatch, reader):
    options = SOURCES[reader](tmp_path)
    (whole,) = [unit.read() for unit in read(reader, tmp_path, 1000, options).units if unit.split == "train"]
    monkeypatch.setattr(readers, "MAX_SHARD_BYTES", 3 * whole.inputs[0][:1].nbytes)
    parts = [unit.read() for unit in read(reader, tmp_path, 1000, options).units if unit.split == "train"]
    assert [len(part.labels) for part in parts] == [3, 3, 2]
    assert np.array_equal(np.concatenate([part.inputs[0] for part in parts]), whole.inputs[0])


def _arrays(folder):
    np.savez(folder / "a.npz", features=np.arange(8.0), labels=np.arange(8) % 2)
    return {"train": "a.npz"}


def _idx(folder):
    for prefix in ("train", "t10k"):
        header = struct.pack(">4I", 2051, 8, 5, 4)
        (folder / f"{prefix}-images-idx3-ubyte.gz").write_bytes(gzip.compress(header + bytes(range(160))))
        (folder / f"{prefix}-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 2049, 8) + bytes(8))
    return {}


def _cifar(folder):
    for name in ("train", "test"):
        (folder / f"{name}.bin").write_bytes(b"".join(bytes([0, 1]) + bytes([n]) * 3072 for n in range(8)))
    return {}


def _folder(folder):
    from PIL import Image

    for split, name in ((split, name) for split in ("train", "test") for name in "ab"):
        (folder / split / name).mkdir(parents=True)
        for number in range(4):
            Image.new("RGB", (6, 6), (number, 0, 0)).save(folder / split / name / f"{number}.png")
    return {"size": 6, "resize": "none"}


SOURCES = {"arrays": _arrays, "idx": _idx, "cifar": _cifar, "folder": _folder}
