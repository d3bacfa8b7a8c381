import tracemalloc

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nnlo_lib.data.readers import read
from nnlo_lib.errors import UserError

RNG = np.random.default_rng(0)
SETTINGS = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def hdf5(path, **options):
    def write(arrays):
        with h5py.File(path, "w") as file:
            for name, array in arrays.items():
                file.create_dataset(name, data=array, **options)

    return write


def npz(path, save=np.savez):
    return lambda arrays: save(path, **arrays)


WRITERS = {
    "hdf5": lambda folder, number: hdf5(folder / f"part{number:02d}.h5"),
    "gzipped hdf5": lambda folder, number: hdf5(
        folder / f"part{number:02d}.h5", compression="gzip", chunks=True
    ),
    "npz": lambda folder, number: npz(folder / f"part{number:02d}.npz"),
    "compressed npz": lambda folder, number: npz(folder / f"part{number:02d}.npz", np.savez_compressed),
}


def blocks(folder, shard_size=100, split="train", **options):
    options = {"train": "part*"} | options
    return [unit.read() for unit in read("arrays", folder, shard_size, options).units if unit.split == split]


def joined(folder, shard_size=100, **options):
    parts = blocks(folder, shard_size, **options)
    inputs = [np.concatenate(each) for each in zip(*(part.inputs for part in parts), strict=True)]
    return inputs, np.concatenate([part.labels for part in parts])


@pytest.mark.parametrize("kind", WRITERS)
@SETTINGS
@given(counts=st.lists(st.integers(1, 30), min_size=1, max_size=5), shard_size=st.integers(1, 40))
def test_any_division_into_files_gives_the_samples_in_order(tmp_path_factory, kind, counts, shard_size):
    folder = tmp_path_factory.mktemp("arrays")
    features, labels = RNG.normal(size=(sum(counts), 3)).astype(np.float32), RNG.integers(0, 5, sum(counts))
    ends = np.cumsum(counts)
    for number, (start, end) in enumerate(zip(ends - counts, ends, strict=True)):
        WRITERS[kind](folder, number)({"features": features[start:end], "labels": labels[start:end]})
    parts = blocks(folder, shard_size)
    assert [len(part.labels) for part in parts[:-1]] == [shard_size] * (len(parts) - 1)
    (found,), classes = joined(folder, shard_size)
    assert np.array_equal(found, features)
    assert found.dtype == np.float32
    assert np.array_equal(classes, labels)


def test_lists_as_users_of_nnlo_have_them(tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    monkeypatch.setenv("JETS", str(tmp_path / "data"))
    for number in range(4):
        hdf5(tmp_path / "data" / f"jets{number}.h5")(
            {"features": np.full((2, 3), number), "labels": np.eye(2)}
        )
    (tmp_path / "train.txt").write_text("# made by hand\n\ndata/jets0.h5\n  $JETS/jets1.h5   # the second\n")
    (tmp_path / "data" / "test.txt").write_text("jets2.h5\njets3.h5")
    contents = read(
        "arrays",
        tmp_path,
        10,
        {"train": "train.txt", "test": "data/test.txt", "validation": ["data/jets0.h5"]},
    )
    found = {unit.split: unit.read() for unit in contents.units}
    assert found["train"].inputs[0][:, 0].tolist() == [0, 0, 1, 1]
    assert found["test"].inputs[0][:, 0].tolist() == [2, 2, 3, 3]
    assert found["validation"].labels.tolist() == [0, 1]


def test_a_group_is_several_inputs_sorted_by_name(tmp_path):
    arrays = {
        "X/b": np.arange(6).reshape(2, 3),
        "X/a/z": np.ones((2, 1)),
        "X/a/y": np.zeros(2),
        "Y": np.array([0, 1]),
    }
    hdf5(tmp_path / "part.h5")(arrays)
    contents = read("arrays", tmp_path, 10, {"train": "part.h5", "features": "X", "labels": "Y"})
    assert contents.inputs == ("X/a/y", "X/a/z", "X/b")
    block = contents.units[0].read()
    assert [array.shape for array in block.inputs] == [(2,), (2, 1), (2, 3)]
    assert np.array_equal(block.inputs[2], arrays["X/b"])
    chosen = read("arrays", tmp_path, 10, {"train": "part.h5", "features": ["X/b", "X/a/y"], "labels": "Y"})
    assert chosen.inputs == ("X/b", "X/a/y")


@pytest.mark.parametrize("order", ["C", "F"])
def test_pairs_of_npy_files(tmp_path, order):
    features, labels = RNG.normal(size=(9, 4, 2)), RNG.integers(0, 3, 9)
    np.save(tmp_path / "x.npy", np.asarray(features, order=order))
    np.save(tmp_path / "y.npy", labels)
    (tmp_path / "train.txt").write_text("x.npy y.npy\n")
    (found,), classes = joined(tmp_path, 4, train="train.txt")
    assert np.array_equal(found, features)
    assert np.array_equal(classes, labels)


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (np.eye(3)[[2, 0, 1]], [2, 0, 1]),
        (np.eye(3, dtype=np.uint8)[[2, 0, 1]], [2, 0, 1]),
        (np.array([[2], [0], [1]], np.int16), [2, 0, 1]),
        (np.array([2.0, 0.0, 1.0]), [2, 0, 1]),
        (np.array([True, False, True]), [1, 0, 1]),
        (np.array([2, 0, 1], ">i4"), [2, 0, 1]),
    ],
)
def test_labels_become_classes(tmp_path, labels, classes):
    hdf5(tmp_path / "part.h5")({"features": np.zeros((3, 2)), "labels": labels})
    _, found = joined(tmp_path)
    assert found.tolist() == classes
    assert found.dtype == np.int64


@pytest.mark.parametrize(
    "labels",
    [
        np.array([0.0, 0.5, 1.0]),
        np.eye(3)[[0, 1, 2]] * 0.9,
        np.array([[1, 0], [1, 1], [0, 1]]),
        np.array([0.0, np.nan, 1.0]),
    ],
)
def test_labels_that_are_no_classes_are_refused_or_kept_as_numbers(tmp_path, labels):
    hdf5(tmp_path / "part.h5")({"features": np.zeros((3, 2)), "labels": labels})
    with pytest.raises(
        UserError, match=r"part\.h5: the label of sample [01] is .*data\.reader\.one_hot: false"
    ):
        joined(tmp_path)
    _, found = joined(tmp_path, one_hot=False)
    assert np.array_equal(found, labels, equal_nan=True)
    assert found.dtype.kind == "f"


def test_big_endian_becomes_native(tmp_path):
    hdf5(tmp_path / "part.h5")({"features": np.arange(6, dtype=">f4").reshape(3, 2), "labels": np.arange(3)})
    (features,), _ = joined(tmp_path)
    assert features.dtype == np.dtype("=f4")
    assert features.dtype.isnative
    assert features.tolist() == [[0, 1], [2, 3], [4, 5]]


def test_an_adaptor_changes_the_features(tmp_path):
    (tmp_path / "mine.py").write_text(
        "def scale(x):\n    return x / 2\ndef fail(x):\n    raise ValueError('no such column')\n"
    )
    hdf5(tmp_path / "part.h5")({"features": np.full((3, 2), 8.0), "labels": np.arange(3)})
    (features,), _ = joined(tmp_path, adaptor=f"{tmp_path}/mine.py:scale")
    assert features.tolist() == [[4, 4]] * 3
    with pytest.raises(
        UserError, match=r"the adaptor .*mine\.py:fail failed on .*part\.h5: ValueError: no such column"
    ):
        joined(tmp_path, adaptor=f"{tmp_path}/mine.py:fail")
    with pytest.raises(UserError, match=r"the adaptor .*mine\.py:none failed"):
        joined(tmp_path, adaptor=f"{tmp_path}/mine.py:none")


GOOD = {"features": np.zeros((3, 2)), "labels": np.arange(3)}


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"labels": np.arange(3)}, r"part01\.h5 has no features; it has labels"),
        ({"features": np.zeros((3, 2))}, r"part01\.h5 has no labels"),
        (
            GOOD | {"labels": np.arange(4)},
            r"part01\.h5: its arrays differ in their number of samples: features \(3, 2\), labels \(4,\)",
        ),
        (
            GOOD | {"features": np.zeros((3, 5))},
            r"part01\.h5: features is \(5,\) float64, but in .*part00\.h5 \(2,\) float64",
        ),
        (GOOD | {"features": np.zeros((3, 2), np.float32)}, r"features is \(2,\) float32, but in .* float64"),
        (GOOD | {"features": np.array([b"a", b"b", b"c"])}, r"features holds \|S1; numbers are wanted"),
        (GOOD | {"features": np.zeros((3, 2), complex)}, "numbers are wanted"),
        (
            {"features": np.zeros((3, 2)), "labels/a": np.arange(3)},
            "labels is a group; labels must be one array",
        ),
        ({"features": 1.0, "labels": 2.0}, "differ in their number of samples|numbers"),
    ],
)
def test_files_that_do_not_fit_are_named(tmp_path, arrays, message):
    hdf5(tmp_path / "part00.h5")(GOOD)
    hdf5(tmp_path / "part01.h5")(arrays)
    with pytest.raises(UserError, match=message):
        read("arrays", tmp_path, 10, {"train": "part*.h5"})


@pytest.mark.parametrize(
    ("train", "message"),
    [
        ("list.txt", r"list\.txt:2: there is no file lost\.h5"),
        ("none.txt", r"cannot read the list .*none\.txt"),
        ("empty.txt", r"empty\.txt lists no file"),
        ("lost*.h5", r"no file in .* is like lost\*\.h5"),
        (["lost.h5"], r"there is no file lost\.h5"),
    ],
)
def test_missing_files_are_named(tmp_path, train, message):
    hdf5(tmp_path / "part00.h5")(GOOD)
    (tmp_path / "list.txt").write_text("part00.h5\nlost.h5\n")
    (tmp_path / "empty.txt").write_text("# nothing\n")
    with pytest.raises(UserError, match=message):
        read("arrays", tmp_path, 10, {"train": train})


def spoiled(good):
    """Cut at many places, flip bits at many, and be something else."""
    yield from (good[:length] for length in {0, 1, 7, 8, 100, *range(0, len(good), max(1, len(good) // 40))})
    for at in range(0, len(good), max(1, len(good) // 400)):
        yield good[:at] + bytes([good[at] ^ 0x41]) + good[at + 1 :]
    yield b"<html>not found</html>"


@pytest.mark.parametrize("kind", WRITERS)
def test_damage_is_a_sentence_or_keeps_the_shape(tmp_path, kind):
    """Neither HDF5 nor NPY has checksums of its values, so a flip in them passes; nothing else does."""
    WRITERS[kind](tmp_path, 0)({"features": RNG.normal(size=(50, 4)), "labels": np.arange(50) % 7})
    (path,) = tmp_path.iterdir()
    refused = 0
    for content in spoiled(path.read_bytes()):
        path.write_bytes(content)
        try:
            (features,), labels = joined(tmp_path, 20, train=path.name, one_hot=False)
        except UserError as error:
            refused += path.name in str(error)
        else:
            assert len(features) == len(labels)
    assert refused > 40


def header(shape):
    text = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


def test_a_bomb_declared_is_refused_before_allocation(tmp_path):
    (tmp_path / "x.npy").write_bytes(header((10**9, 100)) + bytes(80))
    np.save(tmp_path / "y.npy", np.arange(3))
    with h5py.File(tmp_path / "part.h5", "w") as file:
        file.create_dataset("features", shape=(10**9, 1000), dtype="f8", chunks=(10, 10), compression="gzip")
        file["labels"] = np.arange(3)
    tracemalloc.start()
    for train in (["x.npy y.npy"], "part.h5"):
        with pytest.raises(UserError, match=r"declares 800,000,000,000|declares 8,000,000,000,000"):
            read("arrays", tmp_path, 10, {"train": train})
    assert tracemalloc.get_traced_memory()[1] < 2e6
    tracemalloc.stop()


def test_memory_is_that_of_a_shard_whatever_the_file(tmp_path):
    np.savez_compressed(tmp_path / "part.npz", features=np.zeros((20_000, 100)), labels=np.zeros(20_000, int))
    unit = read("arrays", tmp_path, 100, {"train": "part.npz"}).units[150]
    tracemalloc.start()
    unit.read()
    assert tracemalloc.get_traced_memory()[1] < 6e6  # the member has 16 MB
    tracemalloc.stop()
