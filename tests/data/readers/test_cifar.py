"""CIFAR-10 and CIFAR-100, binary and pickled; pickles are read without running them (hostile ones: tests/security)."""

import os
import pickle
import tarfile
import tracemalloc

import numpy as np
import pytest

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.fetch.archive import extract
from nnlo_lib.data.readers import cifar
from nnlo_lib.data.readers.base import read
from nnlo_lib.data.readers.cifar import load_batch

NAMES = ["airplane", "automobile", "bird"]
BATCHES = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]
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


def assert_same(found, expected):
    for split, arrays in expected.items():
        assert all(map(np.array_equal, found[split], arrays))


def binary(folder, sizes=(5, 4, 3, 6, 2, 4), lowest=0):
    """Write CIFAR-10 in the binary layout; return {file name: (pixels, labels)}."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = {name: samples(size) for name, size in zip(BATCHES, sizes, strict=True)}
    for name, (pixels, labels) in parts.items():
        labels[:] = [max(label, lowest) for label in labels[1:]] + [lowest]
        rows = np.column_stack([np.array(labels, np.uint8), pixels])
        (folder / f"{name}.bin").write_bytes(rows.tobytes())
    (folder / "batches.meta.txt").write_text("\n".join(NAMES) + "\n\n")
    return parts


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
    names = {b"label_names": [name.encode() for name in NAMES]}
    (folder / "batches.meta").write_bytes(pickle.dumps(names, protocol=2))


def test_the_real_archive_against_bytes_counted_by_hand(shared_data, tmp_path):
    archive = shared_data / "cifar10" / "cifar-10-binary.tar.gz"
    extract(archive, tmp_path / "files")
    found = whole(tmp_path / "files", 3000)
    with tarfile.open(archive) as tar:
        content = {os.path.basename(m.name): tar.extractfile(m).read() for m in tar if m.isfile()}
    for split, files, count in (("train", BATCHES[:5], 10_000), ("test", BATCHES[5:], 2_000)):
        raw = b"".join(content[f"{file}.bin"] for file in files)
        images, labels = found[split]
        assert images.shape == (count, 3, 32, 32)
        assert labels.tolist() == [raw[at * 3073] for at in range(count)]
        assert all(images[at].tobytes() == raw[at * 3073 + 1 : (at + 1) * 3073] for at in range(count))
    assert read("cifar", tmp_path / "files", 100, {}).class_names[:3] == tuple(NAMES)


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4])
def test_the_python_layout_gives_the_same_as_the_binary_one(tmp_path, protocol):
    python(tmp_path / "py", binary(tmp_path / "bin"), protocol)
    (tmp_path / "bin/cifar-10-binary.tar.gz").touch()
    assert_same(whole(tmp_path / "py"), whole(tmp_path / "bin"))
    assert read("cifar", tmp_path / "py", 9, {}).class_names == tuple(NAMES)


@pytest.mark.parametrize(
    "form",
    [
        lambda labels: np.array(labels, np.uint8)[:, None],
        lambda labels: np.array(labels, ">i2"),
        lambda labels: list(np.array(labels)),
    ],
    ids=["column of Keras", "big-endian array", "list of NumPy's integers"],
)
def test_batches_that_were_pickled_again_have_text_keys_and_labels_of_numpy(tmp_path, form):
    parts = binary(tmp_path / "bin")
    python(tmp_path / "py", parts)
    for name, (pixels, labels) in parts.items():
        (tmp_path / "py" / name).write_bytes(pickle.dumps({"data": pixels, "labels": form(labels)}))
    assert_same(whole(tmp_path / "py"), whole(tmp_path / "bin"))


def test_each_batch_is_unpickled_once_for_all_its_shards_and_again_if_replaced(tmp_path, monkeypatch):
    loaded = []
    python(tmp_path, binary(tmp_path / "bin"))
    units = read("cifar", tmp_path, 1, {}).units
    monkeypatch.setattr(
        cifar, "load_batch", lambda path, key: loaded.append(path.name) or load_batch(path, key)
    )
    for unit in units:
        unit.read()
    assert loaded == BATCHES
    parts = binary(tmp_path / "bin", (1,) * 6)
    python(tmp_path, parts)
    assert np.array_equal(whole(tmp_path)["test"][0].reshape(-1, 3072), parts["test_batch"][0])


@pytest.mark.parametrize("layout", ["bin", "py"])
@pytest.mark.parametrize(("named", "lowest", "first"), [(False, 1, 1), (False, 0, 0), (True, 1, 0)])
def test_labels_from_1_are_the_first_class_unless_names_say_otherwise(tmp_path, layout, named, lowest, first):
    python(tmp_path / "py", binary(tmp_path / "bin", lowest=lowest))
    if not named:
        for file in tmp_path.glob("*/batches.meta*"):
            file.unlink()
    assert read("cifar", tmp_path / layout, 9, {}).first_class == first


def python_2_bytes(value):
    """Return a str as Python 2 pickles it (opcode U of protocols 1 and 2); encoding="bytes" reads it as bytes."""
    return b"U" + bytes([len(value)]) + value


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
    for name in BATCHES:
        (tmp_path / name).write_bytes(content)
    images, found = whole(tmp_path)["test"]
    assert np.array_equal(images.reshape(-1, 3072), pixels)
    assert found.tolist() == labels


def test_cifar100_has_two_kinds_of_labels(tmp_path):
    pixels, fine = samples(5)
    numbers = {"fine": fine, "coarse": [label // 5 for label in fine]}
    rows = np.column_stack([*(np.array(numbers[kind], np.uint8) for kind in ("coarse", "fine")), pixels])
    content = {f"{kind}_labels".encode(): each for kind, each in numbers.items()} | {b"data": pixels}
    for name, data in (("a/%s.bin", rows.tobytes()), ("b/%s", pickle.dumps(content, protocol=2))):
        (tmp_path / name[0]).mkdir()
        for split in ("train", "test"):
            (tmp_path / (name % split)).write_bytes(data)
        for kind, each in numbers.items():
            images, found = whole(tmp_path / name[0], labels=kind)["train"]
            assert np.array_equal(images.reshape(-1, 3072), pixels)
            assert found.tolist() == each


GOOD = {b"data": np.zeros((2, 3072), np.uint8), b"labels": [0, 1]}


@pytest.mark.parametrize(
    "content",
    [
        GOOD | {b"data": np.zeros((2, 3072), np.int64)}, GOOD | {b"data": np.zeros((2, 3000), np.uint8)},
        GOOD | {b"data": np.array([None, {}], object)}, GOOD | {b"labels": [0]}, GOOD | {b"labels": [0, 300]},
        GOOD | {b"labels": [0, b"x"]}, {b"labels": [0, 1]}, None,
        b"\x80\x02}(U\x04datacnumpy.core.multiarray\n_reconstruct\n)RU\x06labels]u.", b"\x80\x02})K\x01s.",
        b"\x80\x02}r" + (100_000_000).to_bytes(4, "little") + b".", b"\x80\x02}p100000000\n.",
    ],
)  # fmt: skip
def test_pickles_of_anything_else_are_refused_without_memory(tmp_path, content):
    """Bytes are pickles that no dump would write, for example with a huge memo."""
    data = content if isinstance(content, bytes) else pickle.dumps(content, protocol=2)
    (tmp_path / "data_batch_1").write_bytes(data)
    tracemalloc.start()
    with pytest.raises(UserError, match="data_batch_1"):
        read("cifar", tmp_path, 9, {})
    assert tracemalloc.get_traced_memory()[1] < 10_000_000
    tracemalloc.stop()


@pytest.mark.parametrize(
    ("labels", "highest", "key"),
    [({}, 9, "labels"), ({"labels": "fine"}, 99, "fine_labels"), ({"labels": "coarse"}, 19, "coarse_labels")],
)
def test_a_label_that_is_no_class_is_named(tmp_path, labels, highest, key):
    names = ["train", "test"] if labels else BATCHES
    record = bytes(3073 + bool(labels))
    at = int(key == "fine_labels")
    for last in (highest, highest + 1):
        for name in names:
            (tmp_path / f"{name}.bin").write_bytes(record + record[:at] + bytes([last]) + record[at + 1 :])
        if last == highest:
            assert whole(tmp_path, **labels)["train"][1].max() == highest
    message = rf"{names[0]}\.bin: record 1 has label {highest + 1}, .*`{key}`.* 0\.\.{highest}"
    with pytest.raises(UserError, match=message):
        whole(tmp_path, **labels)


def test_a_binary_file_of_another_size_is_refused(tmp_path):
    binary(tmp_path)
    good = (tmp_path / "data_batch_4.bin").read_bytes()
    for length in (0, 1, 3072, 3074, len(good) - 1):
        (tmp_path / "data_batch_4.bin").write_bytes(good[:length])
        with pytest.raises(UserError, match=r"data_batch_4\.bin: the file has .*not a positive multiple"):
            read("cifar", tmp_path, 9, {})
