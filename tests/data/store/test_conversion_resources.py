"""Memory and disk of a conversion: it holds one shard, and a full disk is a sentence."""

import tracemalloc

import h5py
import numpy as np
import pytest
from helpers.conversions import own_conversion
from helpers.nnlo_command import nnlo_process, refused
from helpers.small_disk import disk, leave_pages

from nnlo_lib.data.store.convert import convert
from nnlo_lib.data.store.manifest import DataManifest
from nnlo_lib.data.store.shard import ALIGNMENT_BYTES, map_shard, write_shard

__all__ = ["disk"]

SHARD_BYTES = 100_000_000  # read and written in blocks of 16 MB
LEVELS = (0, 1, 2, 4, 6, 9, 17)  # free pages; a shard of 100 digits and its record have 4


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
    # An array of an NPZ is in memory as a whole, beside the one that was read before.
    members = SHARD_BYTES if kind == "compressed npz" else 0
    assert 0.9 * stored < peak < 1.5 * stored + members


@pytest.mark.exhaustive
@pytest.mark.processes
@pytest.mark.parametrize("format", ["hdf5", "npz"])
def test_a_full_disk_is_a_sentence_and_leaves_nothing_half_written(digits_raw, disk, format):
    """Before, HDF5 ended with a segmentation fault when it closed a file, at the exit of the interpreter."""
    command = (
        f"task convert --dataset digits --raw {digits_raw} --target {disk}/store --shard-size 100".split()
    )
    for pages in LEVELS:
        leave_pages(disk, pages)
        message = refused(nnlo_process(*command, "--format", format))
        assert message.startswith(f"cannot write {disk / 'store'}"), pages
        assert message.count("\n") == 1
        assert "No space left on device" in message
        assert not [path for path in disk.rglob("*") if path.name.endswith(".part")]
        assert not (disk / "store/manifest.json").exists()
    (disk / "ballast").unlink()
    assert nnlo_process(*command, "--format", format).returncode == 0
    DataManifest.load(disk / "store/manifest.json").verify()


@pytest.mark.parametrize("samples", [1, 10, 1000, 30_000])
def test_arrays_in_hdf5_are_aligned(tmp_path, samples):
    arrays = {"a": np.ones((samples, 3), "u1"), "b": np.ones((samples, 5)), "labels": np.arange(samples)}
    write_shard(tmp_path / "x.h5", "hdf5", arrays)
    for mapped, array in zip(map_shard(tmp_path / "x.h5", list(arrays)), arrays.values(), strict=True):
        assert np.array_equal(mapped, array)
        # A mapping of a file begins at a page.
        assert mapped.ctypes.data % ALIGNMENT_BYTES == 0
