"""Mean and deviation of difficult values, and values that are not finite."""

import re

import numpy as np
import pytest
from helpers.conversions import own_conversion
from hypothesis import given, settings
from hypothesis import strategies as st

from nnlo_lib.config.data import DataConfig
from nnlo_lib.core.errors import UserError
from nnlo_lib.data.describe import describe
from nnlo_lib.data.store import sample_statistics
from nnlo_lib.data.store.convert import convert
from nnlo_lib.data.store.manifest import DataManifest
from nnlo_lib.data.store.sample_statistics import ChannelMoments, pooled
from nnlo_lib.data.store.split import Split
from nnlo_lib.train.replica.preprocess import Preprocessor

RNG = np.random.default_rng(0)


def stored(folder, features, labels=None, shard_size=7, **options):
    """Convert samples in two files; the second starts with sample 10."""
    labels = np.arange(len(features)) % 2 if labels is None else labels
    for name, part in {"a": slice(0, 10), "b": slice(10, None)}.items():
        np.savez(folder / f"{name}.npz", features=features[part], labels=labels[part])
    reader = {"name": "arrays", "train": ["a.npz", "b.npz"]} | options
    return convert(own_conversion(folder, folder / "store", "npz", shard_size, reader))


@pytest.mark.parametrize("shard_size", [7, 1000])
def test_a_small_deviation_from_a_large_mean_keeps_its_digits(tmp_path, shard_size):
    """Sums of squares gave 22.6 and 0.0 in place of the deviation 1."""
    times = 1.7e9 + np.where(np.arange(200)[:, None] % 2, 1.0, -1.0) * [1, 0.5]
    manifest = stored(tmp_path, times, shard_size=shard_size)
    (column,) = manifest.inputs
    assert column.mean == pytest.approx([1.7e9, 1.7e9], rel=1e-15)
    assert column.std == pytest.approx([1.0, 0.5], rel=1e-6)
    inputs, labels = Split(manifest, "train").take(np.arange(200))
    (values,), _ = Preprocessor(manifest, DataConfig(normalize="standard"), "cpu")(inputs, labels)
    assert np.allclose(np.abs(values.numpy()), 1.0, atol=1e-5)


@settings(max_examples=40)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.floats(-1e8, 1e8), st.integers(1, 20))
def test_any_division_gives_the_moments_of_the_whole(parts, center, chunk):
    values = center + np.random.default_rng(1).normal(size=(sum(parts), 3, 2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sample_statistics, "CHUNK_VALUES", chunk)
        pieces = np.split(values, np.cumsum(parts)[:-1])
        found = pooled([ChannelMoments.of(piece) for piece in pieces])
    assert found.counts == (2 * sum(parts),) * 3
    assert found.means == pytest.approx(values.mean(axis=(0, 2)), rel=1e-14, abs=1e-14)
    assert found.deviations == pytest.approx(values.std(axis=(0, 2)), rel=1e-6)


@pytest.mark.parametrize(
    ("where", "value", "dtype"),
    [
        ("features", np.nan, "f2"),
        ("features", np.inf, "f4"),
        ("features", 1e300, "f8"),  # its square overflows float64
        ("labels", np.nan, "f8"),
        ("labels", -1e39, "f8"),
    ],
)
def test_values_that_are_not_finite_as_float32_are_named(tmp_path, where, value, dtype):
    features, labels = RNG.normal(size=(20, 3)).astype(dtype), np.arange(20.0)
    {"features": features[:, 1], "labels": labels}[where][12] = value
    message = rf"b\.npz: sample 2 has the value {re.escape(str(value))} in {where}; 1 of 7 samples .* float32"
    with pytest.raises(UserError, match=message):
        stored(tmp_path, features, labels, one_hot=False)
    assert not (tmp_path / "store/manifest.json").exists()


def test_allowed_values_are_counted_and_shown(tmp_path):
    features = RNG.normal(size=(20, 3))
    features[0, 0], features[1, 0], features[19, 2] = np.nan, np.inf, 1e300
    manifest = DataManifest.load(stored(tmp_path, features, non_finite="allow").folder)
    assert [shard.non_finite for shard in manifest.splits["train"].shards] == [2, 0, 1]
    finite = np.where(np.abs(features) < 1e30, features, np.nan)
    assert manifest.inputs[0].mean == pytest.approx(np.nanmean(finite, axis=0))
    assert manifest.inputs[0].std == pytest.approx(np.nanstd(finite, axis=0))
    shown = "values    NaN or infinite: 2 in train-00000-of-00003.npz, 1 in train-00002-of-00003.npz"
    assert shown in describe(manifest, {})


def test_a_channel_without_a_finite_value(tmp_path):
    features = np.full((20, 2), np.nan, np.float32)
    features[:, 1] = 3
    (column,) = stored(tmp_path, features, non_finite="allow").inputs
    assert column.mean == (0, 3)
    assert column.std == (0, 0)


@pytest.mark.parametrize("shard_size", [30, 1000])
def test_a_constant_channel_has_no_deviation(tmp_path, shard_size):
    """Rounding in the mean gave 1e-17, by which `normalize: standard` divided other values."""
    values = (0.1, 1 / 3, 1234.567, 1.7e9 + 0.1)
    (column,) = stored(tmp_path, np.tile(values, (100, 1)), shard_size=shard_size).inputs
    assert column.mean == values
    assert column.std == (0,) * 4


def test_every_input_is_searched(tmp_path):
    first, second = np.ones((6, 2)), np.ones((6, 3))
    second[4, 2] = np.nan
    np.savez(tmp_path / "a.npz", first=first, second=second, labels=np.arange(6) % 2)
    reader = {"name": "arrays", "train": "a.npz", "features": ["first", "second"]}
    with pytest.raises(UserError, match=r"a\.npz: sample 4 has the value nan in second"):
        convert(own_conversion(tmp_path, tmp_path / "store", "npz", 10, reader))


def test_non_finite_values_of_an_own_reader_are_named(tmp_path, monkeypatch):
    """Readers in a user's file are checked like the built-in ones; the shard is named without parts."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reader.py").write_text(
        "import numpy as np\n"
        "from nnlo_lib.data.readers import contents_of_arrays\n"
        "def read(folder, shard_size):\n"
        "    rows = np.ones((8, 2))\n"
        "    rows[5, 0] = np.inf\n"
        "    return contents_of_arrays({'train': (rows, np.arange(8) % 2)}, folder / 'x.bin', shard_size)\n"
    )
    (tmp_path / "x.bin").touch()
    with pytest.raises(UserError, match=r"x\.bin: sample 1 of shard train-00001-of-00002 has the value inf"):
        convert(own_conversion(tmp_path, tmp_path / "store", "npz", 4, {"name": "reader.py:read"}))
