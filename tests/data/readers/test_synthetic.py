"""Synthetic data: the same bytes in every version, classes that a mean separates, and zeros as in PyDTNN."""

import hashlib

import numpy as np
import pytest

from nnlo_lib.config import Experiment
from nnlo_lib.data.readers.base import read
from nnlo_lib.data.store.manifest import DataManifest
from nnlo_lib.data.store.split import Split
from nnlo_lib.data.store_location import locate_store
from nnlo_lib.preflight.data_check import expected_manifest
from nnlo_lib.train.task import prepare_store

OPTIONS = {"shape": [2, 5, 3], "classes": 4, "samples": 203, "test_samples": 50}


def samples(folder, split, shard_size=1000, **options):
    units = read("synthetic", folder, shard_size, OPTIONS | options).units
    blocks = [unit.read() for unit in units if unit.split == split]
    return tuple(
        np.concatenate(parts) for parts in zip(*((b.inputs[0], b.labels) for b in blocks), strict=True)
    )


@pytest.mark.parametrize("content", ["classes", "noise", "zeros"])
def test_samples_depend_on_the_seed_and_not_on_the_shards(tmp_path, content):
    whole, labels = samples(tmp_path, "train", content=content)
    parts, same = samples(tmp_path, "train", shard_size=17, content=content)
    assert (whole.shape, whole.dtype) == ((203, 2, 5, 3), np.uint8)
    np.testing.assert_array_equal(whole, parts)
    np.testing.assert_array_equal(labels, same)
    other, _ = samples(tmp_path, "train", content=content, seed=1)
    assert np.array_equal(whole, other) == (content == "zeros")


def test_the_bytes_are_the_same_in_every_version(tmp_path):
    images, _ = samples(tmp_path, "train")
    assert hashlib.sha256(images.tobytes()).hexdigest()[:16] == "71bf835bb8a70075"


def test_a_nearest_mean_finds_the_classes_and_only_in_classes(tmp_path):
    right = {}
    for content in ("classes", "noise"):
        (images, labels), (tests, truth) = (
            samples(tmp_path, each, content=content) for each in ("train", "test")
        )
        means = np.stack([images[labels == label].mean(0) for label in range(4)])
        distances = ((tests[:, None] - means[None]) ** 2).sum((2, 3, 4))
        right[content] = (distances.argmin(1) == truth).mean()
    assert right["classes"] == 1
    assert right["noise"] < 0.6


def test_the_store_is_as_the_checks_before_the_conversion_expect(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    reader = {"name": "synthetic", **OPTIONS, "content": "zeros"}
    run = Experiment.model_validate({"data": {"dataset": "synthetic", "reader": reader}})
    expected = expected_manifest(run)
    store = locate_store(run.data.store_settings)
    manifest = DataManifest.load(prepare_store(store))
    assert (manifest.classes, manifest.inputs[0].shape, len(Split(manifest, "test"))) == (4, (2, 5, 3), 50)
    for each in (expected, manifest):
        assert (each.classes, each.inputs[0].shape, each.inputs[0].name) == (4, (2, 5, 3), "features")
    assert expected.class_labels == manifest.class_labels
    (features,), labels = Split(manifest, "test").take(np.arange(50))
    assert (features.any(), labels.any()) == (False, False)
    other = run.data.model_copy(update={"reader": run.data.reader.model_copy(update={"seed": 1})})
    assert locate_store(other.store_settings).folder != store.folder
    assert locate_store(run.data.store_settings) == store
