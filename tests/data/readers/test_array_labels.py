"""Labels of the user's arrays: classes from numbers, rows, signs and text, the same in all files; and numbers to learn."""

from unicodedata import normalize

import h5py
import numpy as np
import pytest
from helpers.conversions import own_conversion

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.readers.base import read
from nnlo_lib.data.store.convert import convert
from nnlo_lib.data.store.split import Split


def save(folder, kind="npz", **labels):
    """Write one file for each named array of labels."""
    for name, values in labels.items():
        features = np.zeros((len(values), 2), np.float32)
        if kind == "npz":
            np.savez(folder / f"{name}.npz", features=features, labels=values)
            continue
        with h5py.File(folder / f"{name}.h5", "w") as file:
            file["features"] = features
            dtype = h5py.string_dtype() if kind == "text of any length" else None
            file.create_dataset("labels", data=values, dtype=dtype)


def splits_of(folder, options):
    return {"train": "train*"} | ({"test": "test*"} if list(folder.glob("test*")) else {}) | options


def contents(folder, **options):
    return read("arrays", folder, 2, splits_of(folder, options))


def stored(folder, **options):
    reader = {"name": "arrays"} | splits_of(folder, options)
    return convert(own_conversion(folder, folder / "store", "npz", 2, reader))


def read_labels(folder, labels, shard_size=100, **options):
    """Write the labels to an HDF5 file, and return the labels of each shard."""
    save(folder, "h5", train=labels)
    units = read("arrays", folder, shard_size, {"train": "train.h5"} | options).units
    return [unit.read().labels for unit in units]


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (np.eye(3)[[2, 0, 1]], [2, 0, 1]), (np.eye(3, dtype=bool)[[2, 0, 1]], [2, 0, 1]), (np.array([[2], [0], [1]], np.int16), [2, 0, 1]),
        (np.array([[2.0], [0.0], [1.0]]), [2, 0, 1]), (np.array([2.0, 0.0, 1.0], np.float16), [2, 0, 1]),
        (np.array([True, False, True]), [1, 0, 1]), (np.array([2, 0, 1], ">i4"), [2, 0, 1]), (np.array([0, 1, 3, 5]), [0, 1, 3, 5]),
    ],
)  # fmt: skip
def test_numbers_and_one_hot_rows_become_classes(tmp_path, labels, classes):
    (found,) = read_labels(tmp_path, labels)
    assert found.tolist() == classes
    assert found.dtype == np.int64


@pytest.mark.parametrize(
    ("labels", "at"),
    [
        ([0.0, 0.5, 1.0], 1), ([0.0, 1.0, np.nan], 2), ([0.0, np.inf], 1), ([0.0, -1e300], 1), (np.array([1, 2**63], np.uint64), 1),
        (np.eye(3) * 0.9, 0), (np.eye(3)[[0, 1, 1]] * [[1], [1], [-1]], 2), ([[1, 0], [1, 1], [0, 1]], 1), ([[1, 0], [0, 1], [0, 0]], 2),
        ([[1.0, np.nan], [0, 1]], 0),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("error")
def test_labels_that_are_no_classes_are_named_by_file_and_sample(tmp_path, labels, at):
    message = rf"train\.h5: the label of sample {at} is .*data\.reader\.one_hot: false"
    for shard_size in (1, 100):
        with pytest.raises(UserError, match=message):
            read_labels(tmp_path, np.array(labels), shard_size)


def test_labels_of_other_dimensions_are_refused_from_the_header(tmp_path):
    with pytest.raises(UserError, match=r"train\.h5: labels has the shape \(2, 3, 4\), but class labels"):
        read_labels(tmp_path, np.zeros((2, 3, 4)))
    (found,) = read_labels(tmp_path, np.ones((2, 3, 4)), one_hot=False)
    assert found.shape == (2, 3, 4)


@pytest.mark.parametrize(
    ("labels", "dtype", "shape"),
    [
        (np.array([0.0, 1.0], np.float32), np.float32, (2,)),
        (np.array([[0.0], [1.0]]), np.float64, (2,)),
        (np.array([0.5, np.nan]), np.float64, (2,)),
        (np.eye(2, dtype=">f4"), np.float32, (2, 2)),
        (np.array([[1, 1], [0, 1]]), np.float64, (2, 2)),
        (np.array([[1], [0]], np.uint8), np.int64, (2,)),
        (np.array([70, 3]), np.float64, (2,)),
        (np.array([-1, 1]), np.float64, (2,)),
    ],
)
def test_without_one_hot_type_and_shape_decide_what_is_a_class(tmp_path, labels, dtype, shape):
    (found,) = read_labels(tmp_path, labels, one_hot=False)
    assert np.array_equal(found, labels.reshape(shape), equal_nan=True)
    assert (found.dtype, found.shape) == (dtype, shape)


NAMES = ["dog", "cat", "ant", "dog", "bee"]


@pytest.mark.parametrize(
    ("kind", "first", "second"),
    [
        ("npz", np.array(NAMES[:3], "S"), np.array(NAMES[3:], "U20")),
        ("npz", np.array(NAMES[:3])[:, None], np.array(NAMES[3:])[:, None]),
        ("h5", np.array(NAMES[:3], "S"), np.array(NAMES[3:], "S9")),
        ("text of any length", np.array(NAMES[:3], object), np.array(NAMES[3:], object)),
    ],
)
def test_text_is_the_same_class_in_all_files_and_shards(tmp_path, kind, first, second):
    save(tmp_path, kind, train0=first, train1=second, test=second[::-1])
    manifest = stored(tmp_path)
    assert manifest.class_names == ("ant", "bee", "cat", "dog")
    assert manifest.classes == 4
    assert Split(manifest, "train").labels.tolist() == [3, 2, 0, 3, 1]
    assert Split(manifest, "test").labels.tolist() == [1, 3]


@pytest.mark.parametrize("kind", ["text of any length", "npz"])
def test_one_name_in_two_forms_is_one_class(tmp_path, kind):
    """Macs write é as two characters, other systems as one."""
    names = ["café", normalize("NFD", "café"), "thé", normalize("NFD", "thé")]
    save(tmp_path, kind, train=np.array(names, object if kind != "npz" else None))
    found = contents(tmp_path)
    assert found.class_names == ("café", "thé")
    assert [label for unit in found.units for label in unit.read().labels] == [0, 0, 1, 1]


def test_labels_from_one_need_the_key_first_class(tmp_path):
    save(tmp_path, train=np.array([1, 2, 3, 2]), test=np.array([3]))
    message = r"train\.npz: the label of sample 0 is 1, .* data\.reader\.first_class: 1"
    with pytest.raises(UserError, match=message):
        contents(tmp_path)
    manifest = stored(tmp_path, first_class=1)
    assert (manifest.classes, manifest.first_class) == (3, 1)
    assert Split(manifest, "train").labels.tolist() == [0, 1, 2, 1]
    assert Split(manifest, "test").labels.tolist() == [2]
    assert contents(tmp_path, first_class=0).first_class == 0


@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.float32])
def test_signs_are_two_classes_with_a_note(tmp_path, dtype):
    parts = {"train0": [1, 1], "train1": [-1, 1], "test": [-1]}
    save(tmp_path, **{name: np.array(values, dtype) for name, values in parts.items()})
    manifest = stored(tmp_path)
    assert manifest.class_names == ("-1", "1")
    assert manifest.notes == ("labels -1 and 1 are the classes 0 and 1",)
    assert Split(manifest, "train").labels.tolist() == [1, 1, 0, 1]
    assert Split(manifest, "test").labels.tolist() == [0]


NO_NUMBERS = r"data\.reader\.first_class: the labels are no class numbers"


@pytest.mark.parametrize(
    ("labels", "options", "message"),
    [
        ({"train0": [1, 2], "train1": [2, 0]}, {"first_class": 1}, "train1: sample 1 is 0, .* classes start at 1"),
        ({"train0": range(5), "train1": [0, 1, 10**9, 3]}, {}, f"train1: sample 2 is {10**9}, .* only 6 different"),
        ({"train0": range(5), "train1": [0, 1, 2**62, 3]}, {}, f"train1: sample 2 is {2**62}, .* only 6 different"),
        ({"train0": range(5), "train1": [0, 1, 37, 3]}, {}, "train1: sample 2 is 37, .* only 6 different"),
        ({"train": range(3), "test": [0, 1, 3]}, {}, "test: sample 2 is 3 in the test split"),
        ({"train": ["a", "b"], "test": ["c"]}, {}, "test: sample 0 is c in the test split"),
        ({"train": [-1, 1], "test": [1, 0]}, {}, "test: sample 1 is 0 in the test split"),
        ({"train0": [0, 1], "train1": ["a", "b"]}, {}, r"train1\.npz: the file has labels \(\) text, .* \(\) integers"),
        ({"train": ["a", "b"]}, {"first_class": 1, "one_hot": False}, NO_NUMBERS),
        ({"train": [0.5, 1.5]}, {"first_class": 1, "one_hot": False}, NO_NUMBERS),
        ({"train": np.eye(2)}, {"first_class": 1}, NO_NUMBERS),
    ],
)  # fmt: skip
def test_a_label_that_does_not_fit_the_others_is_named(tmp_path, labels, options, message):
    save(tmp_path, **{name: np.array(values) for name, values in labels.items()})
    with pytest.raises(UserError, match=message.replace(": sample", r"\.npz: the label of sample")):
        contents(tmp_path, **options)


@pytest.mark.parametrize("types", [("i4", "i8"), ("u1", ">i8"), ("?", "i2"), ("i8", "u8")])
def test_integers_of_all_sizes_are_one_type(tmp_path, types):
    save(tmp_path, train0=np.array([0, 1], types[0]), train1=np.array([1, 0], types[1]))
    assert [label for unit in contents(tmp_path).units for label in unit.read().labels] == [0, 1, 1, 0]


def test_integers_that_are_no_classes_are_numbers_to_learn(tmp_path):
    save(tmp_path, train=np.array([70, -3, 55]), test=np.array([10**9]))
    manifest = stored(tmp_path, one_hot=False)
    note = "the integers in the labels are no class numbers; they are stored as numbers (float64)"
    assert (manifest.classes, manifest.notes) == (None, (note,))
    assert Split(manifest, "test").labels.tolist() == [1e9]
