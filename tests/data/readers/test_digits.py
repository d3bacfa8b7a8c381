import gzip

import numpy as np
import pytest

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.readers import read


def whole(folder):
    """Read each split in one block; return (features, labels) of train and of test."""
    blocks = [unit.read() for unit in read("digits", folder, 10_000, {}).units]
    return [(block.inputs[0], block.labels) for block in blocks]


def test_every_image_of_scikit_learn_is_in_one_split(digits_raw):
    from sklearn.datasets import load_digits

    features, labels = zip(*whole(digits_raw), strict=True)
    rows = np.column_stack([np.concatenate(features).reshape(-1, 64), np.concatenate(labels)])
    images, target = load_digits(return_X_y=True)
    expected = np.column_stack([images, target]).astype(int)
    assert sorted(map(tuple, rows.tolist())) == sorted(map(tuple, expected.tolist()))


def test_a_fifth_of_each_class_is_for_the_test(digits_raw):
    train, test = (np.bincount(labels) for _, labels in whole(digits_raw))
    assert (train.sum(), test.sum()) == (1442, 355)
    assert np.array_equal(test, (train + test) // 5)


def test_blocks_are_bounded(digits_raw):
    units = [unit for unit in read("digits", digits_raw, 100, {}).units if unit.split == "test"]
    blocks = [unit.read() for unit in units]
    assert [len(block.labels) for block in blocks] == [100, 100, 100, 55]
    assert blocks[0].inputs[0].shape == (100, 1, 8, 8)


@pytest.mark.filterwarnings("ignore:loadtxt")
@pytest.mark.parametrize("text", ["", "1,2,3\n", "a,b\n", "17," * 64 + "1\n", "1," * 64 + "1\n1,2\n"])
def test_other_tables_are_refused(tmp_path, text):
    (tmp_path / "digits.csv.gz").write_bytes(gzip.compress(text.encode()))
    with pytest.raises(UserError, match=r"digits.csv.gz: not the digits table"):
        read("digits", tmp_path, 100, {})


@pytest.mark.filterwarnings("ignore:loadtxt")
def test_every_kind_of_damage_is_named_or_harmless(digits_raw, tmp_path):
    good, before = (digits_raw / "digits.csv.gz").read_bytes(), whole(digits_raw)
    spoiled = [good[: len(good) * part // 20] for part in range(20)]
    spoiled += [
        good[:at] + bytes([good[at] ^ 4]) + good[at + 1 :] for at in range(0, len(good), len(good) // 80)
    ]
    named = 0
    for content in spoiled:
        (tmp_path / "digits.csv.gz").write_bytes(content)
        try:
            found = whole(tmp_path)
        except UserError as error:
            named += "digits.csv.gz" in str(error)
        else:
            assert all(
                np.array_equal(a, b)
                for pair in zip(found, before, strict=True)
                for a, b in zip(*pair, strict=True)
            )
    assert named > 90


def test_absent_table_says_how_to_fetch_it(tmp_path):
    with pytest.raises(UserError, match=r"scripts/fetch\.py --dataset digits"):
        read("digits", tmp_path, 100, {})
