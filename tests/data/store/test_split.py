import os
import resource
import shutil

import h5py
import numpy as np
import pytest
from helpers.conversions import conversion_for
from hypothesis import given, settings
from hypothesis import strategies as st

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.catalog import DIGITS
from nnlo_lib.data.readers import read
from nnlo_lib.data.store.convert import convert
from nnlo_lib.data.store.manifest import DataManifest
from nnlo_lib.data.store.split import Split


@pytest.fixture(scope="module")
def whole(digits_raw):
    """Return all training digits as the reader gives them."""
    block = read("digits", digits_raw, 10_000, {}).units[0].read()
    return block.inputs[0], block.labels


@settings(max_examples=50, deadline=None)
@given(indices=st.lists(st.integers(0, 1441), max_size=80))
def test_take_gathers_across_shards(digits, whole, indices):
    indices = np.array(indices, dtype=np.int64)
    (features,), labels = Split(digits, "train").take(indices)
    assert np.array_equal(features, whole[0][indices])
    assert np.array_equal(labels, whole[1][indices])


def test_all_labels_are_at_hand(digits, whole):
    split = Split(digits, "train")
    assert len(split) == 1442
    assert np.array_equal(split.labels, whole[1])


def test_shards_stay_on_disk(digits):
    """The arrays are read-only views of memory-mapped files."""
    for array in Split(digits, "train")._inputs[0]:
        assert isinstance(array.base, np.memmap)
        assert not array.flags.writeable


@pytest.mark.parametrize("indices", [[-1], [0, 1442]])
def test_index_outside_is_an_error(digits, indices):
    with pytest.raises(IndexError, match=r"not all in 0\.\.1441"):
        Split(digits, "train").take(np.array(indices))


@pytest.fixture(params=["hdf5", "npz"])
def many_shards(request, digits_raw, tmp_path) -> DataManifest:
    return convert(conversion_for(DIGITS, digits_raw, tmp_path / "many", request.param, 10))


@pytest.fixture
def few_files(many_shards):
    """Set this process's soft limit to about twenty more open files, after the store was written."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    already = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (already + 20, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.long
@pytest.mark.usefixtures("few_files")
def test_more_shards_than_files_may_be_open(many_shards, whole):
    """A split may have more shards than the limit on open files; ImageNet has 1,024 of both by default."""
    splits = [Split(many_shards, "train") for _ in range(2)]
    for split in splits:
        assert np.array_equal(split.take(np.arange(1442))[0][0], whole[0])


@pytest.mark.usefixtures("few_files")
def test_too_few_files_is_not_taken_for_damage(many_shards, monkeypatch):
    monkeypatch.setattr(resource, "setrlimit", lambda *_: None)
    with pytest.raises(UserError, match=r"181 shards.*ulimit -n.*data\.shard_size") as error:
        Split(many_shards, "train")
    assert "rm -f" not in str(error.value)


@pytest.fixture
def copy(digits, tmp_path) -> DataManifest:
    shutil.copytree(digits.folder, tmp_path / digits.format)
    return DataManifest.load(tmp_path / digits.format)


def spoil(content: bytes, how: str) -> bytes:
    middle = len(content) // 2
    return {
        "truncated": content[:middle],
        "empty": b"",
        "zeros": bytes(len(content)),
        "no start": bytes(middle) + content[middle:],
    }[how]


@pytest.mark.parametrize("how", ["truncated", "empty", "zeros", "no start", "gone"])
def test_damaged_shard_is_named_with_the_command_that_mends_it(copy, how):
    path = copy.folder / copy.splits["train"].shards[1].file
    path.unlink() if how == "gone" else path.write_bytes(spoil(path.read_bytes(), how))
    with pytest.raises(UserError) as error:
        Split(copy, "train")
    assert f"shard {path} is unreadable" in str(error.value)
    assert str(error.value).endswith(f"rm -f {path} {copy.folder / 'manifest.json'}")


@pytest.mark.parametrize("how", ["truncated", "empty", "zeros", "no start"])
def test_damage_is_found_even_if_the_manifest_agrees_on_the_size(copy, how):
    shard = copy.splits["test"].shards[0]
    path = copy.folder / shard.file
    path.write_bytes(spoil(path.read_bytes(), how))
    fields = (copy.folder / "manifest.json").read_text()
    (copy.folder / "manifest.json").write_text(fields.replace(str(shard.bytes), str(path.stat().st_size)))
    with pytest.raises(UserError, match="is unreadable"):
        Split(DataManifest.load(copy.folder), "test")


@pytest.mark.parametrize("change", ["compressed", "other dtype", "other shape", "no labels"])
def test_arrays_of_another_layout_are_refused(copy, change):
    shard = copy.splits["test"].shards[0]
    features = np.zeros((355, 1, 8, 8), np.float32 if change == "other dtype" else np.uint8)
    features = features[:9] if change == "other shape" else features
    arrays = {"features": features} | ({} if change == "no labels" else {"labels": np.zeros(355, np.int64)})
    path = copy.folder / shard.file
    if copy.format == "hdf5":
        options = {"compression": "gzip"} if change == "compressed" else {}
        with h5py.File(path, "w") as file:
            for name, array in arrays.items():
                file.create_dataset(name, data=array, **options)
    else:
        with path.open("wb") as file:
            (np.savez_compressed if change == "compressed" else np.savez)(file, **arrays)
    fields = (copy.folder / "manifest.json").read_text()
    (copy.folder / "manifest.json").write_text(fields.replace(str(shard.bytes), str(path.stat().st_size)))
    with pytest.raises(UserError, match="is unreadable"):
        Split(DataManifest.load(copy.folder), "test")
