"""The digits and the diabetes study of scikit-learn: each sample is in one split."""

import numpy as np
from sklearn.datasets import load_diabetes, load_digits

from nnlo_lib.data.catalog import find_dataset
from nnlo_lib.data.fetch.fetch import fetch
from nnlo_lib.data.readers.base import read


def test_every_digit_is_in_one_split_with_a_fifth_of_each_class_in_the_test(digits_raw):
    train, test = (unit.read() for unit in read("digits", digits_raw, 10_000, {}).units)
    pixels, labels = (
        np.concatenate(pair) for pair in ((train.inputs[0], test.inputs[0]), (train.labels, test.labels))
    )
    images, target = load_digits(return_X_y=True)
    found, expected = np.column_stack([pixels.reshape(-1, 64), labels]), np.column_stack([images, target])
    assert sorted(map(tuple, found.tolist())) == sorted(map(tuple, expected.astype(int).tolist()))
    assert (len(train.labels), len(test.labels)) == (1442, 355)
    assert np.array_equal(np.bincount(test.labels), np.bincount(labels) // 5)


def test_every_patient_is_in_one_split(tmp_path):
    fetch(find_dataset("diabetes"), tmp_path)
    features, targets = load_diabetes(return_X_y=True, scaled=False)
    train, test = (unit.read() for unit in read("diabetes", tmp_path, 10_000, {}).units)
    assert (len(train.labels), len(test.labels)) == (354, 88)
    assert train.labels.dtype == np.float32
    np.testing.assert_array_equal(test.labels, targets[4::5].astype(np.float32))
    np.testing.assert_array_equal(test.inputs[0], features[4::5].astype(np.float32))
    both = np.concatenate([train.inputs[0], test.inputs[0]])
    assert sorted(map(tuple, both)) == sorted(map(tuple, features.astype(np.float32)))
