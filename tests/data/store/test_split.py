"""Samples of a split, read from memory-mapped shards."""

import os
import resource

import numpy as np
import pytest
from helpers.synthetic_store import handmade
from hypothesis import given, settings
from hypothesis import strategies as st

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.readers.base import read
from nnlo_lib.data.store.split import Split


@pytest.fixture(scope="module")
def whole(digits_raw):
    """Return all training digits as the reader gives them."""
    block = read("digits", digits_raw, 10_000, {}).units[0].read()
    return block.inputs[0], block.labels


@settings(max_examples=40)
@given(indices=st.lists(st.integers(0, 1441), max_size=80), times=st.sampled_from([1, 100]))
def test_take_gathers_across_shards(digits, whole, indices, times):
    """Also so many samples that they are taken shard by shard."""
    indices = np.array(indices * times, dtype=np.int64)
    (features,), labels = Split(digits, "train").take(indices)
    assert np.array_equal(features, whole[0][indices])
    assert np.array_equal(labels, whole[1][indices])


def test_a_split_has_all_labels_and_maps_the_features(digits, whole):
    split = Split(digits, "train")
    assert len(split) == 1442
    assert np.array_equal(split.labels, whole[1])
    for array in split._inputs[0]:
        assert isinstance(array.base, np.memmap)
        assert not array.flags.writeable


@pytest.mark.parametrize("indices", [[-1], [0, 1442]])
def test_an_index_outside_is_an_error(digits, indices):
    with pytest.raises(IndexError, match=r"not all in 0\.\.1441"):
        Split(digits, "train").take(np.array(indices))


def test_a_split_may_have_more_shards_than_files_may_be_open(tmp_path, monkeypatch):
    """The limit is raised; if it cannot be raised, this is not taken for damage. ImageNet has 1,024 shards."""
    values = np.arange(80.0).reshape(80, 1)
    store = handmade(tmp_path, {"train": (values, np.arange(80) % 2)}, shard=1)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 20, before[1]))
    try:
        with monkeypatch.context() as patch:
            patch.setattr(resource, "setrlimit", lambda *_: None)
            with pytest.raises(UserError, match=r"80 shards.*ulimit -n.*data\.shard_size") as error:
                Split(store, "train")
        assert "rm -f" not in str(error.value)
        splits = [Split(store, "train") for _ in range(2)]
        assert all(np.array_equal(split.take(np.arange(80))[0][0], values) for split in splits)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
