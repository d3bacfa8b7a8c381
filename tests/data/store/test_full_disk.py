"""A disk that becomes full while data are converted."""

import numpy as np
import pytest
from helpers.nnlo_command import nnlo_process, refused
from helpers.small_disk import disk, leave_pages

from nnlo_lib.data.store.manifest import DataManifest
from nnlo_lib.data.store.shard import ALIGNMENT_BYTES, map_shard, write_shard

__all__ = ["disk"]

LEVELS = (0, 1, 2, 4, 6, 9, 17)  # free pages; a shard of 100 digits and its record have 4


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
