"""The random streams of a task, and its fingerprint, which must match for a resume from a checkpoint.

test_schedules.py has schedules that end with the training, test_user_files.py edits of the user's files.
"""

import hashlib
import json
from itertools import combinations

import numpy as np
import pytest
import torch
from helpers.training_here import digits

from nnlo_lib.comm.simulated.communicator import SimulatedWorld
from nnlo_lib.config import Run
from nnlo_lib.config.base import non_defaults
from nnlo_lib.config.train import TrainConfig
from nnlo_lib.data.store.manifest import manifest_fingerprint
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
