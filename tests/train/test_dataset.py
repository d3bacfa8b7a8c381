"""Training and validation samples of each rank, and data settings that are refused before the training."""

import numpy as np
import pytest
from helpers.synthetic_store import handmade

from nnlo_lib.config import Run
from nnlo_lib.core.errors import UserError
from nnlo_lib.data.partition import load_partition
from nnlo_lib.train.dataset import TrainingData
from nnlo_lib.train.task import Task

RNG = np.random.default_rng(0)


def images(count, classes=4):
    return RNG.integers(0, 256, (count, 3, 6, 6), dtype=np.uint8), np.arange(count) % classes


@pytest.fixture
def store(tmp_path):
    splits = {"train": images(100), "test": images(20), "validation": images(30)}
    return handmade(tmp_path / "store", splits)


def opened(store, tmp_path, workers=4, fold=None, **settings):
    run = Run.model_validate(settings)
    folds = 1 if fold is None else 5
    task = Task("e", "r", run, 1, fold, folds, store.folder / "manifest.json", tmp_path / "job")
    return TrainingData(task, workers)


@pytest.mark.parametrize(
    ("fold", "validation", "samples"),
    [
        (None, 0.2, (100, 20, 80)),
        (None, "test", (20, 20, 100)),
        (None, "validation", (30, 30, 100)),
        (3, "test", (100, 20, 80)),  # folds come before the split
    ],
)
def test_the_samples_that_validate(store, tmp_path, fold, validation, samples):
    data = opened(store, tmp_path, fold=fold, data={"validation": validation})
    split, held = data.validation_set
    assert (len(split), len(held), len(data.worker_samples[0])) == samples
    assert fold or len(held) != 20 or np.bincount(split.labels[held]).tolist() == [5, 5, 5, 5]


def test_an_epoch_of_fewer_steps(store, tmp_path):
    settings = {"train": {"steps_per_epoch": 2, "batch_size": 4}}
    assert opened(store, tmp_path, **settings).loader(0).samples == 2 * 4 * 4


@pytest.mark.parametrize(
    "partition", [{"name": "by_class"}, {"name": "sorted"}, {"name": "dirichlet", "alpha": 0.3}]
)
def test_the_partition_is_saved_and_covers_all_samples(store, tmp_path, partition):
    data = opened(store, tmp_path, data={"partition": partition})
    data.save()
    held, parts = load_partition(tmp_path / "job" / "state" / "partition.npz")
    assert sorted(np.concatenate([held, *parts]).tolist()) == list(range(100))
    assert len(parts) == 4
    used = [batch.ids for worker in range(4) for batch in data.loader(worker).epoch(0)]
    assert sorted(np.concatenate(used).tolist()) == sorted(np.concatenate(parts).tolist())


def test_the_processes_of_a_worker_share_its_classes(store, tmp_path):
    settings = {
        "data": {"partition": {"name": "by_class"}, "validation": 0},
        "algorithm": {"name": "downpour"},
        "parallel": {"ranks": 5, "processes_per_worker": 2},
    }
    parts = opened(store, tmp_path, **settings).worker_samples
    classes = [sorted({int(place) % 4 for place in part}) for part in parts]
    assert classes == [[0, 1], [0, 1], [2, 3], [2, 3]]
    assert [len(part) for part in parts] == [25] * 4


def test_augmented_and_cropped_images_reach_the_batch(store, tmp_path):
    data = opened(store, tmp_path, data={"crop": 4, "augment": {"flip": 0.5}})
    batch = next(iter(data.loader(0).epoch(0)))
    assert batch.inputs[0].shape[1:] == (3, 4, 4)


def test_what_does_not_fit_is_refused_at_once(tmp_path):
    numbers = handmade(tmp_path / "numbers", {"train": (RNG.normal(size=(50, 3)), RNG.normal(size=50))})
    with pytest.raises(UserError, match=r"data\.validation: digits has no split test; it has train"):
        opened(numbers, tmp_path, data={"validation": "test"})
    with pytest.raises(UserError, match=r"no test split, and data\.validation is 0"):
        opened(numbers, tmp_path, data={"validation": 0})
    with pytest.raises(UserError, match=r"digits are float64 numbers; set problem: regression"):
        assert opened(numbers, tmp_path).outputs
    with pytest.raises(UserError, match=r"data\.partition: by_class divides the samples by class"):
        opened(numbers, tmp_path, data={"partition": {"name": "by_class"}})
