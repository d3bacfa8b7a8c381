"""PyDTNN's NPZ files of ImageNet: uint8 images, and labels 1..1000 of type int16 and shape (n, 1)."""

import numpy as np
import yaml

from nnlo_lib.config import Experiment
from nnlo_lib.data.store.manifest import DataManifest
from nnlo_lib.data.store.split import Split
from nnlo_lib.data.store_location import locate_store
from nnlo_lib.train.task import prepare_store

SETTINGS = """
data:
  dataset: imagenet-npz
  source: npz
  reader: {name: arrays, train: 'train/*.npz', test: 'test/*.npz', features: x, labels: y, first_class: 1}
"""


def test_labels_from_1_are_the_classes_from_0(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    images = np.random.default_rng(0).integers(0, 256, (6, 3, 227, 227), np.uint8)
    labels = np.array([3, 1, 2, 3, 1, 2], np.int16)[:, None]
    ends = {
        "train/train-00000-01024": (0, 2),
        "train/train-00001-01024": (2, 5),
        "test/val-00000-00128": (5, 6),
    }
    for name, (start, end) in ends.items():
        (tmp_path / "npz" / name).parent.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(tmp_path / f"npz/{name}.npz", x=images[start:end], y=labels[start:end])
    data = Experiment.model_validate(yaml.safe_load(SETTINGS)).data
    manifest = DataManifest.load(prepare_store(locate_store(data.store_settings)))
    (column,) = manifest.inputs
    assert (manifest.classes, column.shape, column.dtype) == (3, (3, 227, 227), "uint8")
    (stored,), classes = Split(manifest, "train").take(np.arange(5))
    np.testing.assert_array_equal(stored, images[:5])
    assert classes.tolist() == [2, 0, 1, 2, 0]
    assert Split(manifest, "test").labels.tolist() == [1]
