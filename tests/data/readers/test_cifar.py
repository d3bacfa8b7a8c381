import os
import pickle
import tarfile
import tracemalloc
from functools import partial

import numpy as np
import pytest

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.fetch.archive import extract
from nnlo_lib.data.readers import cifar, read
from nnlo_lib.data.readers.cifar_pickle import load_batch

NAMES = ["airplane", "automobile", "bird"]
RNG = np.random.default_rng(0)


def samples(count):
    return RNG.integers(0, 256, (count, 3072), dtype=np.uint8), RNG.integers(0, 10, count).tolist()


def whole(folder, shard_size=7, **options):
    """Read all blocks and return {split: (images, labels)}."""
    blocks = {}
    for unit in read("cifar", folder, shard_size, options).units:
        blocks.setdefault(unit.split, []).append(unit.read())
    return {
        split: (np.concatenate([b.inputs[0] for b in parts]), np.concatenate([b.labels for b in parts]))
        for split, parts in blocks.items()
    }


def binary(folder, sizes=(5, 4, 3, 6, 2), test=4):
    """Write CIFAR-10 in the binary layout; return {file name: (pixels, labels)}."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = {f"data_batch_{number}": samples(size) for number, size in enumerate(sizes, start=1)}
    parts["test_batch"] = samples(test)
    for name, (pixels, labels) in parts.items():
        rows = np.column_stack([np.array(labels, np.uint8), pixels])
        (folder / f"{name}.bin").write_bytes(rows.tobytes())
    (folder / "batches.meta.txt").write_text("\n".join(NAMES) + "\n\n")
    return parts


def python_2_bytes(value):
    """Return a str as Python 2 pickles it (opcode U of protocols 1 and 2); encoding="bytes" reads it as bytes."""
    return b"U" + bytes([len(value)]) + value


def python(folder, parts, protocol=2):
    """Write the samples of `binary` in the python layout, pickled by Python 3."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, (pixels, labels) in parts.items():
        content = {
            b"batch_label": b"x",
            b"labels": labels,
            b"data": pixels,
            b"filenames": [b"a.png"] * len(labels),
        }
        (folder / name).write_bytes(pickle.dumps(content, protocol=protocol))
    (folder / "batches.meta").write_bytes(
        pickle.dumps({b"label_names": [n.encode() for n in NAMES]}, protocol=2)
    )


def test_the_real_archive_against_bytes_counted_by_hand(shared_data, tmp_path):
    archive = shared_data / "cifar10" / "cifar-10-binary.tar.gz"
    extract(archive, tmp_path / "files")
    found = whole(tmp_path / "files", 3000)
    with tarfile.open(archive) as tar:
        content = {os.path.basename(m.name): tar.extractfile(m).read() for m in tar if m.isfile()}
    for split, files, count in (
        ("train", [f"data_batch_{n}.bin" for n in range(1, 6)], 10_000),
        ("test", ["test_batch.bin"], 2_000),
    ):
        raw = b"".join(content[file] for file in files)
        images, labels = found[split]
        assert images.shape == (count, 3, 32, 32)
        assert labels.tolist() == [raw[at * 3073] for at in range(count)]
        assert all(images[at].tobytes() == raw[at * 3073 + 1 : (at + 1) * 3073] for at in range(count))
    assert read("cifar", tmp_path / "files", 100, {}).class_names[:3] == tuple(NAMES)


@pytest.mark.parametrize("shard_size", [1, 4, 100])
def test_batches_of_any_size_are_joined_in_order(tmp_path, shard_size):
    parts = binary(tmp_path / "only")
    images, labels = whole(tmp_path, shard_size)["train"]
    names = [f"data_batch_{number}" for number in range(1, 6)]
    assert images.reshape(-1, 3072).tolist() == np.concatenate([parts[name][0] for name in names]).tolist()
    assert labels.tolist() == [label for name in names for label in parts[name][1]]


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_python_layout_gives_the_same_as_the_binary_one(tmp_path, protocol):
    parts = binary(tmp_path / "bin")
    python(tmp_path / "py", parts, protocol)
    for split, (images, labels) in whole(tmp_path / "bin").items():
        others = whole(tmp_path / "py")[split]
        assert np.array_equal(others[0], images)
        assert np.array_equal(others[1], labels)
    assert read("cifar", tmp_path / "py", 9, {}).class_names == tuple(NAMES)


def test_each_batch_is_unpickled_once_for_all_its_shards(tmp_path, monkeypatch):
    loaded = []
    python(tmp_path, binary(tmp_path / "bin"))
    units = read("cifar", tmp_path, 1, {}).units
    monkeypatch.setattr(
        cifar, "load_batch", lambda path, key: loaded.append(path.name) or load_batch(path, key)
    )
    for unit in units:
        unit.read()
    assert loaded == [f"data_batch_{number}" for number in range(1, 6)] + ["test_batch"]


def test_a_replaced_batch_is_read_again(tmp_path):
    for seed in range(2):
        parts = {
            name: samples(3 + seed) for name in [*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"]
        }
        python(tmp_path, parts)
        assert np.array_equal(whole(tmp_path)["test"][0].reshape(-1, 3072), parts["test_batch"][0])


def test_pickles_of_python_2_are_read(tmp_path):
    """Pickles with the features of the official files are read: Python 2 str, numpy.core.multiarray, protocol 2."""
    pixels, labels = samples(2)
    data = (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + python_2_bytes(b"b") + b"\x87R"
        b"(K\x01K\x02M\x00\x0c\x86cnumpy\ndtype\n" + python_2_bytes(b"u1") + b"K\x00K\x01\x87R"
        b"(K\x03" + python_2_bytes(b"|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89"
        b"T" + pixels.nbytes.to_bytes(4, "little") + pixels.tobytes() + b"tb"
    )  # fmt: skip
    numbers = b"](" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    content = b"\x80\x02}(" + python_2_bytes(b"data") + data + python_2_bytes(b"labels") + numbers + b"u."
    for name in [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]:
        (tmp_path / name).write_bytes(content)
    images, found = whole(tmp_path)["test"]
    assert np.array_equal(images.reshape(-1, 3072), pixels)
    assert found.tolist() == labels


@pytest.mark.parametrize("labels", ["fine", "coarse"])
def test_cifar100_has_two_kinds_of_labels(tmp_path, labels):
    pixels, fine = samples(5)
    coarse = [label // 5 for label in fine]
    for name in ("train", "test"):
        rows = np.column_stack([np.array(coarse, np.uint8), np.array(fine, np.uint8), pixels])
        (tmp_path / "a").mkdir(exist_ok=True)
        (tmp_path / "a" / f"{name}.bin").write_bytes(rows.tobytes())
        content = {b"fine_labels": fine, b"coarse_labels": coarse, b"data": pixels}
        (tmp_path / "b").mkdir(exist_ok=True)
        (tmp_path / "b" / name).write_bytes(pickle.dumps(content, protocol=2))
    for folder in ("a", "b"):
        images, found = whole(tmp_path / folder, labels=labels)["train"]
        assert np.array_equal(images.reshape(-1, 3072), pixels)
        assert found.tolist() == (fine if labels == "fine" else coarse)


class Evil:
    """Object that calls a function when a plain unpickler loads it."""

    def __init__(self, function, *arguments):
        self.reduced = function, arguments

    def __reduce__(self):
        return self.reduced


@pytest.mark.parametrize(
    "evil",
    [
        partial(Evil, os.system, "touch {mark}"),
        partial(Evil, eval, "open('{mark}', 'w')"),
        partial(Evil, os.mkdir, "{mark}"),
    ],
    ids=["os.system", "eval", "os.mkdir"],
)
@pytest.mark.parametrize("where", ["data", "labels", "inside"])
def test_nothing_in_a_pickle_is_called(tmp_path, evil, where):
    mark = tmp_path / "mark"
    thing = evil.func(evil.args[0], evil.args[1].format(mark=mark))
    pixels, labels = samples(2)
    content = {b"data": pixels, b"labels": labels} | {where.encode(): [thing] if where == "inside" else thing}
    (tmp_path / "data_batch_1").write_bytes(pickle.dumps(content, protocol=2))
    with pytest.raises(UserError, match=r"data_batch_1: not a CIFAR file \(the file refers to "):
        read("cifar", tmp_path, 9, {})
    assert not mark.exists()


@pytest.mark.parametrize(
    "content",
    [
        {b"data": np.zeros((2, 3072)), b"labels": [0, 1]},
        {b"data": np.zeros((2, 3000), np.uint8), b"labels": [0, 1]},
        {b"data": np.zeros((2, 3072), np.uint8), b"labels": [0]},
        {b"data": np.zeros((2, 3072), np.uint8), b"labels": [0, 300]},
        {b"data": np.zeros((2, 3072), np.uint8), b"labels": [0, b"x"]},
        {b"data": np.array([None, {}], object), b"labels": [0, 1]},
        {b"labels": [0, 1]},
        [1, 2, 3],
        None,
    ],
)
def test_pickles_of_anything_else_are_refused(tmp_path, content):
    (tmp_path / "data_batch_1").write_bytes(pickle.dumps(content, protocol=2))
    with pytest.raises(UserError, match="data_batch_1"):
        read("cifar", tmp_path, 9, {})


STATELESS = b"\x80\x02}(U\x04datacnumpy.core.multiarray\n_reconstruct\n)RU\x06labels]u."
BIG_MEMO = [b"\x80\x02}r" + (100_000_000).to_bytes(4, "little") + b".", b"\x80\x02}p100000000\n."]


@pytest.mark.parametrize("content", [STATELESS, b"\x80\x02})K\x01s.", *BIG_MEMO])
def test_pickles_that_no_dump_would_write_are_refused(tmp_path, content):
    (tmp_path / "data_batch_1").write_bytes(content)
    tracemalloc.start()
    with pytest.raises(UserError, match="data_batch_1: not a CIFAR"):
        read("cifar", tmp_path, 9, {})
    assert tracemalloc.get_traced_memory()[1] < 10_000_000
    tracemalloc.stop()


def test_damaged_pickles_are_named_or_read_alike(tmp_path):
    """A damaged pickle is refused by name or has the right shape and no negative label; pixels have no checksum."""
    parts = {f"data_batch_{number}": samples(2) for number in range(1, 6)} | {"test_batch": samples(2)}
    python(tmp_path, parts)
    path, refused = tmp_path / "data_batch_1", 0
    good = path.read_bytes()
    edge = [*range(150), *range(len(good) - 150, len(good))]
    for at in edge:
        damaged = bytearray(good)
        damaged[at] ^= 0xFF
        path.write_bytes(damaged)
        try:
            images, labels = whole(tmp_path)["train"]
        except UserError as error:
            refused += "data_batch_1" in str(error)
        else:
            assert images.shape == (10, 3, 32, 32)
            assert labels.min() >= 0
    assert refused > 100
    for length in (0, 1, 100, len(good) // 2, len(good) - 1):
        path.write_bytes(good[:length])
        with pytest.raises(UserError, match="data_batch_1"):
            whole(tmp_path)


@pytest.mark.parametrize("spoil", [lambda path: path.write_bytes(path.read_bytes()[:-1]), lambda path: path.write_bytes(b""), lambda path: path.unlink()])  # fmt: skip
def test_bad_binary_batches_are_named(tmp_path, spoil):
    binary(tmp_path)
    spoil(tmp_path / "data_batch_3.bin")
    with pytest.raises(UserError, match=r"data_batch_3\.bin"):
        read("cifar", tmp_path, 9, {})


@pytest.mark.parametrize(
    ("labels", "highest", "key"),
    [(None, 9, "labels"), ("fine", 99, "fine_labels"), ("coarse", 19, "coarse_labels")],
)
def test_a_label_that_is_no_class_is_named(tmp_path, labels, highest, key):
    names = [f"data_batch_{n}" for n in range(1, 6)] + ["test_batch"] if labels is None else ["train", "test"]
    head = 1 if labels is None else 2
    at = 1 if labels == "fine" else 0

    def record(label):
        record = bytearray(head + 3072)
        record[at] = label
        return bytes(record)

    for name in names:
        (tmp_path / f"{name}.bin").write_bytes(record(0) + record(highest))
    options = {"labels": labels} if labels else {}
    assert whole(tmp_path, **options)["train"][1].max() == highest
    (tmp_path / f"{names[0]}.bin").write_bytes(record(0) + record(highest + 1))
    with pytest.raises(
        UserError, match=rf"{names[0]}\.bin: record 1 has label {highest + 1}, .*`{key}`.* 0\.\.{highest}"
    ):
        whole(tmp_path, **options)


def test_python_labels_are_checked_as_well(tmp_path):
    parts = binary(tmp_path / "bin")
    parts["data_batch_2"][1][3] = 10
    python(tmp_path / "py", parts)
    with pytest.raises(UserError, match="data_batch_2: record 3 has label 10"):
        whole(tmp_path / "py")


def test_the_archive_may_lie_beside_the_folder(tmp_path):
    parts = binary(tmp_path / "cifar-10-batches-bin")
    (tmp_path / "cifar-10-binary.tar.gz").touch()
    assert whole(tmp_path)["test"][1].tolist() == parts["test_batch"][1]


def test_another_folder_says_what_is_wanted(tmp_path):
    with pytest.raises(UserError, match=r"no CIFAR data found; expected data_batch_1\.bin"):
        read("cifar", tmp_path, 9, {})
