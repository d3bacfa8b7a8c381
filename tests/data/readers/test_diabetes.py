import gzip

import numpy as np
import pytest

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.catalog import find_dataset
from nnlo_lib.data.fetch.fetch import fetch
from nnlo_lib.data.readers import read


@pytest.fixture
def raw(tmp_path):
    fetch(find_dataset("diabetes"), tmp_path, None)
    return tmp_path


def test_every_patient_of_scikit_learn_is_in_one_split(raw):
    from sklearn.datasets import load_diabetes

    features, targets = load_diabetes(return_X_y=True, scaled=False)
    train, test = (unit.read() for unit in read("diabetes", raw, 10_000, {}).units)
    assert (len(train.labels), len(test.labels)) == (354, 88)
    assert train.labels.dtype == np.float32
    np.testing.assert_array_equal(test.labels, targets[4::5].astype(np.float32))
    np.testing.assert_array_equal(test.inputs[0], features[4::5].astype(np.float32))
    both = np.concatenate([train.inputs[0], test.inputs[0]])
    assert sorted(map(tuple, both)) == sorted(map(tuple, features.astype(np.float32)))


def test_blocks_are_bounded(raw):
    assert [len(unit.read().labels) for unit in read("diabetes", raw, 200, {}).units] == [200, 154, 88]


@pytest.mark.parametrize(
    ("text", "told"), [("1 2\n", "rows have 2 numbers instead of 10"), ("a b\n", "not a table")]
)
def test_another_file_is_refused(raw, text, told):
    (raw / "diabetes_data_raw.csv.gz").write_bytes(gzip.compress(text.encode()))
    with pytest.raises(UserError, match=told):
        read("diabetes", raw, 100, {})
