"""Validation samples: a fraction, folds, and folds of whole shards."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.partition import split_train_validation, split_whole_shards


def covers(train, held, samples):
    return np.array_equal(np.sort(np.concatenate([train, held])), np.arange(samples))


@given(
    samples=st.integers(2, 3000),
    validation=st.floats(0, 0.99),
    seed=st.integers(0, 2**64),
    classes=st.none() | st.integers(1, 20),
)
def test_fraction_covers_each_sample_once(samples, validation, seed, classes):
    labels = None if classes is None else np.arange(samples) % classes
    wanted = round(validation * samples)
    if wanted == samples or (validation > 0 and wanted == 0):
        with pytest.raises(UserError, match=r"data\.validation"):
            split_train_validation(samples, labels, validation, 1, None, seed)
        return
    train, held = split_train_validation(samples, labels, validation, 1, None, seed)
    assert covers(train, held, samples)
    assert len(held) == wanted
    assert np.all(np.diff(train) > 0)
    assert np.all(np.diff(held) > 0)


LABELS = st.lists(st.integers(0, 5), min_size=12, max_size=200).map(np.array)


@given(labels=LABELS, folds=st.integers(2, 12), seed=st.integers(0, 99), stratified=st.booleans())
def test_folds_validate_each_sample_once_and_are_even_in_total_and_per_class(labels, folds, seed, stratified):
    samples, given_labels = len(labels), labels if stratified else None
    parts = [split_train_validation(samples, given_labels, 0.5, folds, fold, seed) for fold in range(folds)]
    assert all(covers(train, held, samples) for train, held in parts)
    assert np.array_equal(np.sort(np.concatenate([held for _, held in parts])), np.arange(samples))
    for members in (labels >= 0, *(labels == label for label in range(6) if stratified)):
        counts = [np.count_nonzero(members[held]) for _, held in parts]
        assert max(counts) - min(counts) <= 1


@given(LABELS, st.floats(0.1, 0.9))
def test_fraction_of_any_labels_is_within_one_sample_of_its_share(labels, validation):
    _, held = split_train_validation(len(labels), labels, validation, 1, None, 1)
    for label in range(6):
        wanted = len(held) / len(labels) * np.count_nonzero(labels == label)
        assert abs(np.count_nonzero(labels[held] == label) - wanted) <= 1 + 1e-9


def test_fraction_keeps_the_classes_in_proportion():
    labels = np.repeat([0, 1, 2], [900, 90, 10])
    _, held = split_train_validation(1000, labels, 0.1, 1, None, 3)
    assert np.bincount(labels[held]).tolist() == [90, 9, 1]


def test_seed_decides():
    held = [split_train_validation(1000, None, 0.2, 1, None, seed)[1].tolist() for seed in (1, 1, 2)]
    assert held[0] == held[1] != held[2]


@pytest.mark.parametrize(
    ("samples", "validation", "folds", "fold", "message"),
    [
        (5, 0.05, 1, None, "0.05 of 5 samples gives 0 validation samples"),
        (2, 0.9, 1, None, "0.9 of 2 samples gives 2 validation samples"),
        (100, 1.0, 1, None, "gives 100 validation samples"),
        (100, -0.1, 1, None, "data.validation: -0.1"),
        (3, 0.1, 5, 0, "5 folds need at least 5 samples, not 3"),
        (30, 0.1, 5, 5, "fold 5 of 5"),
        (30, 0.1, 1, 0, "fold 0 of 1"),
    ],
)
def test_impossible_wishes(samples, validation, folds, fold, message):
    with pytest.raises(UserError, match=message):
        split_train_validation(samples, None, validation, folds, fold, 1)


SIZES = [3, 5, 4, 5, 1, 2, 6]


@given(folds=st.integers(2, len(SIZES)), seed=st.integers(0, 99))
def test_folds_of_shards_validate_each_shard_once_and_divide_none(folds, seed):
    shard = [number for number, size in enumerate(SIZES) for _ in range(size)]
    parts = [split_whole_shards(SIZES, 0.5, folds, fold, seed) for fold in range(folds)]
    assert all(covers(train, held, len(shard)) for train, held in parts)
    held = [{shard[sample] for sample in each} for _, each in parts]
    assert sorted(number for each in held for number in each) == list(range(len(SIZES)))
    for (train, _), each in zip(parts, held, strict=True):
        assert {shard[sample] for sample in train}.isdisjoint(each)
    assert max(map(len, held)) - min(map(len, held)) <= 1


def test_too_few_shards():
    message = r"data\.split_by: shards are divided, not samples: 3 folds need at least 3"
    with pytest.raises(UserError, match=message):
        split_whole_shards([50, 50], 0.1, 3, 0, 1)
