"""The random streams of a task, its samples, and its fingerprint, which must match for a resume from a checkpoint.

test_schedules.py has schedules that end with the training, test_user_files.py edits of the user's files.
"""

import hashlib
import json
from itertools import combinations

import numpy as np
import pytest
import torch
from helpers.synthetic_store import handmade
from helpers.training_here import digits

from nnlo_lib.comm.simulated.communicator import SimulatedWorld
from nnlo_lib.config import Run
from nnlo_lib.config.base import non_defaults
from nnlo_lib.config.train import TrainConfig
from nnlo_lib.core.errors import UserError
from nnlo_lib.data.partition import load_partition
from nnlo_lib.data.store.manifest import manifest_fingerprint
from nnlo_lib.train.dataset import TrainingData
from nnlo_lib.train.rank_context import RankContext
from nnlo_lib.train.task import Task


@pytest.fixture
def key(tmp_path):
    """Return a function from settings, or from a run, to the fingerprint."""
    (tmp_path / "manifest.json").write_text("{}")

    def fingerprint(run):
        run = run if isinstance(run, Run) else Run.model_validate(run)
        return Task("t", "t", run, 0, None, 1, tmp_path / "manifest.json", tmp_path).fingerprint

    return fingerprint


def test_a_key_that_is_new_and_has_its_default_changes_nothing(key):
    class Later(TrainConfig):
        foresight: int = 0

    def later(**train):
        changed = Later.model_validate({"epochs": 2, "batch_size": 7, **train})
        return key(Run().model_copy(update={"train": changed}))

    assert later() == later(foresight=0) == key({"train": {"epochs": 2, "batch_size": 7}})
    assert later(foresight=1) != later()


def test_settings_that_change_the_result_or_not(key):
    names = [{"algorithm": {"name": name}} for name in ("allreduce", "average", "diloco", "dsgd")]
    rates = [{"train": {"optimizer": {"name": "sgd", "lr": rate}}} for rate in (0.1, 0.2)]
    assert len({key(run) for run in names + rates}) == 6
    places = [{"parallel": parallel} for parallel in ({}, {"ranks": 5}, {"transport": "simulated"})]
    written_out = json.loads(Run().model_dump_json())
    assert len({key(run) for run in [*places, written_out]}) == 1


def test_each_fold_has_its_own_initial_weights_and_order_of_samples(tmp_path):
    """Folds that share initial weights agree by more than the tests of folds correct for; the division is common."""

    def start(fold, folds=3, seed=5):
        run = Run.model_validate(
            {"model": {"name": "simplemlp"}, "parallel": {"ranks": 1, "transport": "simulated"}}
        )
        made = Task("t", "t", run, seed, fold, folds, digits(), tmp_path / f"{seed}-{fold}")
        [context] = SimulatedWorld(1).run(lambda comm: RankContext(made, comm))
        return context

    plain, *folds = [start(fold) for fold in (None, 0, 1, 2)]
    weights = [context.replica.theta.clone() for context in folds]
    assert torch.equal(plain.replica.theta, weights[0])
    for one, other in combinations(weights, 2):
        drawn = (one != 0) | (other != 0)  # biases may start at 0
        assert abs(np.corrcoef(one[drawn], other[drawn])[0, 1]) < 0.05
    # Places of the first samples among the training samples of the fold, of which two folds have equally many.
    every = np.arange(len(plain.data.split))
    kept = [np.setdiff1d(every, context.data.validation_set[1]) for context in folds]
    places = [
        np.searchsorted(own, context.loader.batch(0, 0).ids) for own, context in zip(kept, folds, strict=True)
    ]
    assert len({tuple(each) for each in places}) == 3
    held = np.concatenate([context.data.validation_set[1] for context in folds])
    assert np.array_equal(np.sort(held), every)


def test_a_checkpoint_of_a_fold_with_shared_initial_weights_is_not_resumed(tmp_path):
    """Fingerprints of version 0.1 (fold 0) stay; other folds have a new one, because their streams are others."""
    (tmp_path / "manifest.json").write_text("{}")

    def key(fold):
        return Task("t", "t", Run(), 0, fold, 3, tmp_path / "manifest.json", tmp_path)

    def earlier(fold):
        inputs = [non_defaults(Run()), 0, fold, 3, manifest_fingerprint(tmp_path / "manifest.json")]
        inputs += ["normalized by training samples"] if key(fold).normalizes_training_samples else []
        text = json.dumps([*inputs, *key(fold).input_checksums.values()], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    assert key(None).fingerprint == earlier(None)
    assert key(0).fingerprint == earlier(0)
    assert key(1).fingerprint != earlier(1)


# Training and validation samples of each rank


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
