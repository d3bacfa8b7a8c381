"""Preprocessing of input batches for training and evaluation."""

import numpy as np
import pytest
import torch
from helpers.synthetic_store import handmade

from nnlo_lib.config.data import DataConfig
from nnlo_lib.core.errors import UserError
from nnlo_lib.data.store.manifest import ArraySpec
from nnlo_lib.train.replica.preprocess import Preprocessor

RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (10, 3, 6, 8), dtype=np.uint8)
LABELS = np.arange(10) % 2


@pytest.fixture
def store(tmp_path):
    means, deviations = PIXELS.mean(axis=(0, 2, 3)), PIXELS.std(axis=(0, 2, 3))
    column = ArraySpec("features", (3, 6, 8), "uint8", tuple(means.tolist()), tuple(deviations.tolist()))
    return handmade(tmp_path / "store", {"train": (PIXELS, LABELS)}, inputs=(column,))


def seen(store, **data):
    (values,), labels = Preprocessor(store, DataConfig(**data), "cpu")((PIXELS,), LABELS)
    assert values.dtype == torch.float32
    assert labels.tolist() == LABELS.tolist()
    return values.numpy()


def test_bytes_become_fractions(store):
    assert np.array_equal(seen(store), PIXELS.astype(np.float32) * np.float32(1 / 255))


def test_standard_has_mean_nothing_and_deviation_one(store):
    values = seen(store, normalize="standard").astype(np.float64)
    assert np.abs(values.mean(axis=(0, 2, 3))).max() < 1e-6
    assert np.abs(values.std(axis=(0, 2, 3)) - 1).max() < 1e-6


def test_own_numbers_are_in_units_of_one(store):
    mean, std = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    expected = (PIXELS / 255 - mean[:, None, None]) / std[:, None, None]
    found = seen(store, normalize={"mean": mean.tolist(), "std": std.tolist()})
    assert np.abs(found - expected).max() < 1e-6


def test_a_constant_channel_stays_finite(tmp_path):
    column = ArraySpec("features", (1, 2, 2), "uint8", (7.0,), (0.0,))
    store = handmade(tmp_path, {"train": (np.full((4, 1, 2, 2), 7, np.uint8), LABELS[:4])}, inputs=(column,))
    standard = Preprocessor(store, DataConfig(normalize="standard"), "cpu")
    (values,), _ = standard((np.full((4, 1, 2, 2), 7, np.uint8),), LABELS[:4])
    assert values.abs().max() == 0


def test_images_are_cropped_at_the_centre(store):
    assert Preprocessor(store, DataConfig(crop=4), "cpu").shape == (3, 4, 4)
    assert np.array_equal(seen(store, crop=4), seen(store)[:, :, 1:5, 2:6])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"crop": 7}, r"data\.crop: 7 needs .* shape \(3, 6, 8\)"),
        (
            {"normalize": {"mean": [0.5], "std": [0.5]}},
            r"data\.normalize: 1 values .* features .* has 3 channels",
        ),
    ],
)
def test_what_does_not_fit_is_refused(store, data, message):
    with pytest.raises(UserError, match=message):
        Preprocessor(store, DataConfig(**data), "cpu")


def test_several_inputs_and_indices(tmp_path):
    inputs = [RNG.normal(size=(10, 4)), RNG.integers(0, 1000, (10, 7))]
    store = handmade(tmp_path, {"train": (inputs, LABELS)}, scale=1.0)
    tensors = Preprocessor(store, DataConfig(), "cpu")
    (floats, integers), _ = tensors(tuple(inputs), LABELS)
    assert tensors.shapes == ((4,), (7,))
    assert (floats.dtype, integers.dtype) == (torch.float32, torch.int64)
    assert np.array_equal(floats.numpy(), inputs[0].astype(np.float32))
    assert np.array_equal(integers.numpy(), inputs[1])
    assert tensors.shape == tensors.shapes
