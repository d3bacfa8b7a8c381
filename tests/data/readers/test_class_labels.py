"""Labels of the user's arrays as classes: numbers from 1, signs and text, the same in all files and splits."""

import h5py
import numpy as np
import pytest
from helpers.conversions import own_conversion

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.readers import read
from nnlo_lib.data.store.convert import convert
from nnlo_lib.data.store.split import Split

OPTIONS = {"train": "train*", "test": "test*"}


def save(folder, kind="npz", **labels):
    """Write one file for each named array of labels."""
    for name, values in labels.items():
        features = np.zeros((len(values), 2), np.float32)
        if kind == "npz":
            np.savez(folder / f"{name}.npz", features=features, labels=values)
        else:
            with h5py.File(folder / f"{name}.h5", "w") as file:
                file["features"] = features
                file.create_dataset(
                    "labels", data=values, dtype=None if kind == "h5" else h5py.string_dtype()
                )


def contents(folder, **options):
    options = OPTIONS | options if list(folder.glob("test*")) else {"train": "train*"} | options
    return read("arrays", folder, 2, options)


def classes(found, split="train"):
    return [label for unit in found.units if unit.split == split for label in unit.read().labels.tolist()]


def stored(folder, **options):
    options = OPTIONS | options if list(folder.glob("test*")) else {"train": "train*"} | options
    job = own_conversion(folder, folder / "store", "npz", 2, {"name": "arrays"} | options)
    return convert(job)


NAMES = ["dog", "cat", "ant", "dog", "bee"]


@pytest.mark.parametrize(
    ("kind", "first", "second"),
    [
        ("npz", np.array(NAMES[:3]), np.array(NAMES[3:])),
        ("npz", np.array(NAMES[:3], "S"), np.array(NAMES[3:], "U20")),
        ("npz", np.array(NAMES[:3])[:, None], np.array(NAMES[3:])[:, None]),
        ("h5", np.array(NAMES[:3], "S"), np.array(NAMES[3:], "S9")),
        ("vlen", np.array(NAMES[:3], object), np.array(NAMES[3:], object)),
    ],
)
def test_text_is_the_same_class_in_all_files_and_shards(tmp_path, kind, first, second):
    save(tmp_path, kind, train0=first, train1=second, test=second[::-1])
    manifest = stored(tmp_path)
    assert manifest.class_names == ("ant", "bee", "cat", "dog")
    assert manifest.classes == 4
    assert Split(manifest, "train").labels.tolist() == [3, 2, 0, 3, 1]
    assert Split(manifest, "test").labels.tolist() == [1, 3]


def test_text_beyond_ascii(tmp_path):
    save(tmp_path, "vlen", train=np.array(["µ", "größe", "µ"], object))
    found = contents(tmp_path)
    assert found.class_names == ("größe", "µ")
    assert classes(found) == [1, 0, 1]


def test_labels_from_one_need_a_key(tmp_path):
    save(tmp_path, train=np.array([1, 2, 3, 2]), test=np.array([3]))
    with pytest.raises(
        UserError, match=r"train\.npz: the label of sample 0 is 1, .* data\.reader\.first_class: 1"
    ):
        contents(tmp_path)
    manifest = stored(tmp_path, first_class=1)
    assert (manifest.classes, manifest.first_class) == (3, 1)
    assert Split(manifest, "train").labels.tolist() == [0, 1, 2, 1]
    assert Split(manifest, "test").labels.tolist() == [2]
    assert contents(tmp_path, first_class=0).first_class == 0


def test_labels_below_the_first_class_are_refused(tmp_path):
    save(tmp_path, train0=np.array([1, 2]), train1=np.array([2, 0]))
    with pytest.raises(UserError, match=r"train1\.npz: the label of sample 1 is 0, .* classes start at 1"):
        contents(tmp_path, first_class=1)


@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.float32])
def test_signs_are_two_classes_and_it_is_noted(tmp_path, dtype):
    save(
        tmp_path, train0=np.array([1, 1], dtype), train1=np.array([-1, 1], dtype), test=np.array([-1], dtype)
    )
    manifest = stored(tmp_path)
    assert manifest.class_names == ("-1", "1")
    assert manifest.notes == ("labels -1 and 1 are the classes 0 and 1",)
    assert Split(manifest, "train").labels.tolist() == [1, 1, 0, 1]
    assert Split(manifest, "test").labels.tolist() == [0]


@pytest.mark.parametrize("label", [10**9, 2**62, 37])
def test_a_stray_label_makes_no_classes(tmp_path, label):
    save(tmp_path, train0=np.arange(5), train1=np.array([0, 1, label, 3]))
    with pytest.raises(
        UserError, match=rf"train1\.npz: the label of sample 2 is {label}, .* only 6 different"
    ):
        contents(tmp_path)


def test_a_few_classes_may_have_no_sample(tmp_path):
    save(tmp_path, train=np.array([0, 1, 3, 5]))
    assert stored(tmp_path).classes == 6


@pytest.mark.parametrize(
    ("train", "test", "message"),
    [
        (np.arange(3), np.array([0, 1, 3]), r"test\.npz: the label of sample 2 is 3 in the test split"),
        (np.array(["a", "b"]), np.array(["c"]), r"test\.npz: the label of sample 0 is c in the test split"),
        (np.array([-1, 1]), np.array([1, 0]), r"test\.npz: the label of sample 1 is 0 in the test split"),
    ],
)
def test_a_label_that_train_lacks_is_named(tmp_path, train, test, message):
    save(tmp_path, train=train, test=test)
    with pytest.raises(UserError, match=message):
        contents(tmp_path)


@pytest.mark.parametrize("types", [("i4", "i8"), ("u1", ">i8"), ("?", "i2"), ("i8", "u8")])
def test_integers_of_all_sizes_are_one_type(tmp_path, types):
    save(tmp_path, train0=np.array([0, 1], types[0]), train1=np.array([1, 0], types[1]))
    assert classes(contents(tmp_path)) == [0, 1, 1, 0]


def test_text_and_numbers_are_two_types(tmp_path):
    save(tmp_path, train0=np.array([0, 1]), train1=np.array(["a", "b"]))
    with pytest.raises(
        UserError, match=r"train1\.npz: the file has labels \(\) text, .* labels \(\) integers"
    ):
        contents(tmp_path)


@pytest.mark.parametrize("labels", [np.array(["a", "b"]), np.array([0.5, 1.5]), np.eye(2)])
def test_first_class_is_for_class_numbers(tmp_path, labels):
    save(tmp_path, train=labels)
    with pytest.raises(UserError, match=r"data\.reader\.first_class: the labels are no class numbers"):
        contents(tmp_path, first_class=1, one_hot=labels.ndim == 2)


def test_integers_that_are_no_classes_are_numbers_to_learn(tmp_path):
    save(tmp_path, train=np.array([70, -3, 55]), test=np.array([10**9]))
    manifest = stored(tmp_path, one_hot=False)
    assert manifest.classes is None
    assert manifest.notes == (
        "the integers in the labels are no class numbers; they are stored as numbers (float64)",
    )
    assert Split(manifest, "test").labels.tolist() == [1e9]
