import gzip

import numpy as np
import pytest

from nnlo_lib.data.readers import read
from nnlo_lib.errors import UserError


def whole(samples):
    ((features, labels),) = samples.pieces(10_000)
    return features, labels


def test_every_image_of_scikit_learn_is_in_one_split(digits_raw):
    from sklearn.datasets import load_digits

    features, labels = zip(*(whole(samples) for samples in read("digits", digits_raw).values()), strict=True)
    rows = np.column_stack([np.concatenate(features).reshape(-1, 64), np.concatenate(labels)])
    images, target = load_digits(return_X_y=True)
    expected = np.column_stack([images, target]).astype(int)
    assert sorted(map(tuple, rows.tolist())) == sorted(map(tuple, expected.tolist()))


def test_a_fifth_of_each_class_is_for_the_test(digits_raw):
    splits = read("digits", digits_raw)
    train, test = (np.bincount(whole(splits[split])[1]) for split in ("train", "test"))
    assert (splits["train"].count, splits["test"].count) == (1442, 355)
    assert np.array_equal(test, (train + test) // 5)


def test_pieces_are_bounded(digits_raw):
    pieces = list(read("digits", digits_raw)["test"].pieces(100))
    assert [len(labels) for _, labels in pieces] == [100, 100, 100, 55]
    assert pieces[0][0].shape == (100, 1, 8, 8)


@pytest.mark.filterwarnings("ignore:loadtxt")
@pytest.mark.parametrize("text", ["", "1,2,3\n", "a,b\n", "17," * 64 + "1\n", "1," * 64 + "1\n1,2\n"])
def test_other_tables_are_refused(tmp_path, text):
    (tmp_path / "digits.csv.gz").write_bytes(gzip.compress(text.encode()))
    with pytest.raises(UserError, match=r"digits.csv.gz is not the digits table"):
        read("digits", tmp_path)


def test_absent_table_says_how_to_fetch_it(tmp_path):
    with pytest.raises(UserError, match=r"scripts/fetch\.py --dataset digits"):
        read("digits", tmp_path)
