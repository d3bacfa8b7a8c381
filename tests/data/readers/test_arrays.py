"""The reader `arrays`: files of a split, groups of inputs, channels, and files that do not fit each other."""

import re

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.readers.base import read

RNG = np.random.default_rng(0)


def hdf5(path, arrays, **options):
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file.create_dataset(name, data=array, **options)


def npy(path, arrays, order="C"):
    for name, array in arrays.items():
        np.save(path.with_suffix(f".{name}.npy"), np.asarray(array, order=order))


WRITERS = {
    "hdf5": ("h5", hdf5),
    "gzipped hdf5": ("h5", lambda path, arrays: hdf5(path, arrays, compression="gzip", chunks=True)),
    "npz": ("npz", lambda path, arrays: np.savez(path, **arrays)),
    "compressed npz": ("npz", lambda path, arrays: np.savez_compressed(path, **arrays)),
    "npy": ("npy", npy),
    "npy in Fortran's order": ("npy", lambda path, arrays: npy(path, arrays, "F")),
}
GOOD = {"features": np.zeros((3, 2)), "labels": np.arange(3)}


def units(folder, shard_size=100, **options):
    return read("arrays", folder, shard_size, {"train": "part*"} | options).units


@pytest.mark.parametrize("kind", WRITERS)
@settings(max_examples=12)
@given(counts=st.lists(st.integers(0, 30), min_size=1, max_size=5).filter(any), shard_size=st.integers(1, 40))
def test_any_division_into_files_gives_the_samples_in_order(tmp_path_factory, kind, counts, shard_size):
    folder, (suffix, write) = tmp_path_factory.mktemp("arrays"), WRITERS[kind]
    features = RNG.normal(size=(sum(counts), 3, 2)).astype(np.float32)
    labels, ends = np.arange(sum(counts)) % 5, np.cumsum(counts)
    for number, (start, end) in enumerate(zip(ends - counts, ends, strict=True)):
        arrays = {"features": features[start:end], "labels": labels[start:end]}
        write(folder / f"part{number}.{suffix}", arrays)
    pairs = [f"part{number}.features.npy part{number}.labels.npy" for number in range(len(counts))]
    blocks = [unit.read() for unit in units(folder, shard_size, train=pairs if suffix == "npy" else "part*")]
    assert [len(block.labels) for block in blocks[:-1]] == [shard_size] * (len(blocks) - 1)
    found = np.concatenate([block.inputs[0] for block in blocks])
    assert found.dtype == np.float32
    assert np.array_equal(found, features)
    assert np.concatenate([block.labels for block in blocks]).tolist() == labels.tolist()


@pytest.fixture
def jets(tmp_path):
    """Write five files of two samples, and return their folder."""
    for number in range(5):
        hdf5(tmp_path / f"jets{number}.h5", {"features": np.full((2, 3), number), "labels": np.eye(2)})
    return tmp_path


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"train": "jets*.h5", "test": "jets1.h5"}, "jets1.h5 is in the splits train and test"),
        ({"train": "jets0.h5", "validation": "linked.h5"}, "the same file as .*jets0.h5, is in the splits train and validation"),
        ({"train": ["jets0.h5", "jets1.h5", "jets0.h5"]}, "jets0.h5 is listed twice for train"),
    ],
)  # fmt: skip
def test_a_file_in_two_splits_is_refused(jets, files, words):
    (jets / "linked.h5").symlink_to("jets0.h5")
    with pytest.raises(UserError, match=words):
        units(jets, **files)


def test_a_copy_of_a_training_file_in_another_split_is_a_warning(jets, capfd):
    (jets / "copy.h5").write_bytes((jets / "jets1.h5").read_bytes())
    units(jets, train="jets*.h5", test="copy.h5")
    words = (
        "copy.h5 of the split test is a copy of .*jets1.h5 of train, so that test measures samples of train"
    )
    assert re.search(words, capfd.readouterr().err)
    units(jets, train=["jets1.h5", "copy.h5"], test="jets0.h5")
    assert not capfd.readouterr().err


def test_splits_are_read_from_lists_of_files(jets):
    (jets / "train.txt").write_text("# made by hand\n\njets0.h5\n  jets1.h5   # the second\n")
    (jets / "test.txt").write_text("jets2.h5\njets3.h5")
    listed = units(jets, train="train.txt", test="test.txt", validation=["jets4.h5"])
    found = {unit.split: unit.read() for unit in listed}
    assert found["train"].inputs[0][:, 0].tolist() == [0, 0, 1, 1]
    assert found["test"].inputs[0][:, 0].tolist() == [2, 2, 3, 3]
    assert found["validation"].labels.tolist() == [0, 1]


TREE = {
    "X/b": np.arange(6).reshape(2, 3),
    "X/a/z": np.ones((2, 1)),
    "X/a/y": np.zeros(2),
    "X/a-": np.ones(2),
    "Y/true": np.array([0, 1]),
}


@pytest.mark.parametrize("kind", ["hdf5", "npz"])
def test_a_group_is_several_inputs_sorted_as_nnlo_does(tmp_path, kind):
    suffix, write = WRITERS[kind]
    write(tmp_path / f"part.{suffix}", TREE)
    options = {"train": "part*", "features": "/X", "labels": "Y/true"}
    contents = read("arrays", tmp_path, 10, options)
    assert contents.inputs == ("X/a/y", "X/a/z", "X/a-", "X/b")
    assert contents.labels == "true"
    block = contents.units[0].read()
    assert [array.shape for array in block.inputs] == [(2,), (2, 1), (2,), (2, 3)]
    assert np.array_equal(block.inputs[3], TREE["X/b"])
    chosen = read("arrays", tmp_path, 10, options | {"features": ["X/b", "X/a"]})
    assert chosen.inputs == ("X/b", "X/a/y", "X/a/z")


@pytest.mark.parametrize("shape", [(4, 3, 2), (5, 4, 3, 2), (4, 3), (7,)])
def test_channels_of_images_may_be_last(tmp_path, shape):
    images = np.arange(6 * np.prod(shape), dtype=np.float32).reshape(6, *shape)
    np.savez(tmp_path / "part.npz", features=images, labels=np.arange(6))
    (found,) = units(tmp_path, channels="last")[0].read().inputs
    order = (0, len(shape), *range(1, len(shape))) if len(shape) > 2 else tuple(range(len(shape) + 1))
    assert np.array_equal(found, images.transpose(order))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"labels": np.arange(3)}, r"no array or group 'features' \(found: labels\)"),
        ({"features": np.zeros((3, 2))}, r"no array or group 'labels' \(found: features\)"),
        ({}, r"no array or group 'labels' \(found: none\)"),
        (GOOD | {"labels": np.arange(4)}, r".* numbers of samples \(shapes features \(3,"),
        (GOOD | {"features": np.zeros((3, 5))}, r"the file has features \(5,\) float64, but .*part0\.h5 has .*\(2,\) float64"),
        (GOOD | {"features": np.zeros((3, 2), "f4")}, r"the file has features \(2,\) float32, but .*part0\.h5"),
        (GOOD | {"labels": np.eye(3)}, r"the file has labels \(3,\) float64, but .* labels \(\) integers"),
        (GOOD | {"features": np.array([b"a"] * 3)}, r"features has the type \|S1, but samples must be"),
        (GOOD | {"features": np.array(["a"] * 3, object)}, r"features has the type object"),
        (GOOD | {"features": np.zeros((3, 2), complex)}, r"features has the type complex128"),
        (GOOD | {"features": np.zeros((3, 2), np.longdouble)}, r"features has the type float128"),
        ({"features": np.zeros((3, 2)), "labels/a": np.arange(3)}, "labels is a group, but only a single label array"),
        ({"features": 1.0, "labels": 2.0}, r"features has the shape \(\)"),
        (GOOD | {"features": np.zeros((3, 0))}, r"features has the shape \(3, 0\)"),
    ],
)  # fmt: skip
def test_a_file_that_does_not_fit_the_others_is_named(tmp_path, arrays, message):
    hdf5(tmp_path / "part0.h5", GOOD)
    hdf5(tmp_path / "part1.h5", arrays)
    with pytest.raises(UserError, match=rf"part1\.h5: .*{message}"):
        units(tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"features": ["features", "features"]}, "is used for two arrays"),
        ({"features": ["g", "g/features"]}, "is used for two arrays"),
        ({"labels": "g/features"}, "is used for two arrays"),
        ({"features": []}, r"data\.reader\.features: the list is empty"),
        ({"train": "x.npy"}, r"x\.npy: an NPY file holds a single array; .*features\.npy labels\.npy"),
        ({"train": ["x.npy", "y.npy"]}, r"x\.npy: an NPY file"),
        ({"train": "x.npy part.h5"}, r"x\.npy: an NPY file"),
        ({"train": "x.npy y.npy", "features": ["a", "b"]}, r"x\.npy: an NPY file"),
        ({"train": "part.h5 part.h5"}, r"only NPY files are listed in pairs"),
    ],
)
def test_options_that_do_not_fit_the_files_are_refused(tmp_path, options, message):
    hdf5(tmp_path / "part.h5", GOOD | {"g/features": np.arange(3)})
    np.save(tmp_path / "x.npy", GOOD["features"])
    np.save(tmp_path / "y.npy", GOOD["labels"])
    with pytest.raises(UserError, match=message):
        units(tmp_path, **options)
