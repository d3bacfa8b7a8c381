"""IDX files: types and dimensions by name and header, compressed files, and damage."""

import gzip
import struct
import tracemalloc

import numpy as np
import pytest

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.fetch import archive
from nnlo_lib.data.readers.base import read
from nnlo_lib.data.readers.idx import open_idx

# dtype in the file, code in the header, dtype in the store
KINDS = {
    "ubyte": ("u1", 8, "u1"),
    "byte": ("i1", 9, "f4"),
    "short": (">i2", 11, "f4"),
    "int": (">i4", 12, "f8"),
    "float": (">f4", 13, "f4"),
    "double": (">f8", 14, "f8"),
}


def idx(shape, values, magic=b"\0\0\x08"):
    return magic + bytes([len(shape)]) + struct.pack(f">{len(shape)}I", *shape) + bytes(values)


GOOD = idx((5, 2, 3), range(30))


def write_set(folder, images=5, labels=5, pack=bytes, suffix=""):
    for prefix in ("train", "t10k"):
        pixels = [value % 251 for value in range(images * 6)]
        (folder / f"{prefix}-images-idx3-ubyte{suffix}").write_bytes(pack(idx((images, 2, 3), pixels)))
        classes = [value % 10 for value in range(labels)]
        (folder / f"{prefix}-labels-idx1-ubyte{suffix}").write_bytes(pack(idx((labels,), classes)))


def write_typed(folder, array, kind, content="images"):
    dtype, code, _ = KINDS[kind]
    raw = idx(array.shape, array.astype(dtype).tobytes(), bytes([0, 0, code]))
    for prefix in ("train", "test"):
        (folder / f"{prefix}-{content}-idx{array.ndim}-{kind}").write_bytes(raw)


def blocks_of(split, folder, shard_size):
    return [unit.read() for unit in read("idx", folder, shard_size, {}).units if unit.split == split]


@pytest.mark.parametrize("kind", KINDS)
def test_types_and_dimensions_follow_the_name_of_the_file(tmp_path, kind):
    for shape in ((5, 4), (5, 2, 3), (5, 3, 2, 2)):
        folder = tmp_path / str(len(shape))
        folder.mkdir()
        values = (np.arange(np.prod(shape)) - (0 if kind == "ubyte" else 7)).reshape(shape)
        write_typed(folder, values, kind)
        write_typed(folder, np.arange(5), "int", "labels")
        for split in ("train", "test"):
            (block,) = blocks_of(split, folder, 9)
            assert block.inputs[0].dtype == KINDS[kind][2]
            assert block.inputs[0].shape == ((5, 1, 2, 3) if len(shape) == 3 else shape)
            assert np.array_equal(block.inputs[0].reshape(shape), values)
            assert block.labels.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(("pack", "suffix"), [(bytes, ""), (gzip.compress, ".gz"), (bytes, ".gz")])
def test_plain_and_compressed_files_give_the_same(tmp_path, pack, suffix):
    write_set(tmp_path, images=7, labels=7, pack=pack, suffix=suffix)
    blocks = blocks_of("train", tmp_path, 3)
    assert np.concatenate([block.inputs[0] for block in blocks]).ravel().tolist() == list(range(42))
    assert np.concatenate([block.labels for block in blocks]).tolist() == list(range(7))


def test_mnist_against_bytes_counted_by_hand(shared_data):
    folder = shared_data / "mnist"
    images = gzip.decompress((folder / "t10k-images-idx3-ubyte.gz").read_bytes())
    labels = gzip.decompress((folder / "t10k-labels-idx1-ubyte.gz").read_bytes())
    assert struct.unpack(">4I", images[:16]) == (2051, 10_000, 28, 28)
    assert struct.unpack(">2I", labels[:8]) == (2049, 10_000)
    blocks = blocks_of("test", folder, 999)
    assert b"".join(block.inputs[0].tobytes() for block in blocks) == images[16:]
    assert [label for block in blocks for label in block.labels] == list(labels[8:])


def test_sets_that_do_not_fit_are_refused(tmp_path):
    write_typed(tmp_path, np.zeros((5, 4)), "float")
    write_typed(tmp_path, np.zeros(5), "float", "labels")
    with pytest.raises(UserError, match="labels must be integers in 1 dimension"):
        read("idx", tmp_path, 9, {})
    (tmp_path / "a").mkdir()
    write_set(tmp_path / "a", images=5, labels=4)
    with pytest.raises(UserError, match=r"5 images, but .* 4 labels"):
        read("idx", tmp_path / "a", 10, {})
    (tmp_path / "a/train-images.idx3-int").touch()
    several = r"several files of one kind: train-images-idx3-ubyte, train-images\.idx3-int"
    with pytest.raises(UserError, match=several):
        read("idx", tmp_path / "a", 9, {})


def test_consecutive_shards_decompress_the_file_once(tmp_path, monkeypatch):
    opened = []
    write_set(tmp_path, images=200, labels=200, pack=gzip.compress, suffix=".gz")
    units = read("idx", tmp_path, 2, {}).units
    monkeypatch.setattr(archive.gzip, "open", lambda path: opened.append(path.name) or gzip.GzipFile(path))
    for unit in units:
        assert len(unit.read().labels) == 2
    assert len(opened) <= 4


def packed(content):
    """Compress without the time: the names of the tests must be the same on all workers."""
    return gzip.compress(content, mtime=0)


PACKED = packed(GOOD)


HUGE = (2**32 - 1,) * 3
DAMAGED = {
    "empty": (b"", "not an IDX file"),
    "cut header": (b"\0\0\x08\x03\0\0", "not an IDX file"),
    "dimensions": (idx((30,), range(30)), r"not an IDX file of the type ubyte in 3 dimensions \(starts with 00 00 08 01"),
    "type": (idx((5, 2, 3), range(30), magic=b"\0\0\x0d"), "not an IDX file"),
    "huge": (idx(HUGE, range(30)), "declares"),
    "huge and packed": (packed(idx(HUGE, range(30))), "declares"),
    "large and packed": (packed(idx((100_000, 28, 28), bytes(100))), "declares 78,400,016 bytes"),
    "cut": (GOOD[:-1], "declares 46 bytes, but the file has 45"),
    "long": (GOOD + b"x", "declares 46 bytes, but the file has 47"),
    "cut and packed": (packed(GOOD[:-1]), "truncated, fewer"),
    "long and packed": (packed(GOOD + b"x"), "more values than the header declares"),
    "cut stream": (PACKED[:-9], "truncated"),
    "checksum": (PACKED[:-8] + bytes(8), "damaged"),
}  # fmt: skip


@pytest.mark.parametrize(("content", "message"), DAMAGED.values(), ids=DAMAGED)
def test_a_bad_header_or_size_is_refused_without_memory(tmp_path, content, message):
    path = tmp_path / "images"
    path.write_bytes(content)
    tracemalloc.start()
    with pytest.raises(UserError, match=message) as error:
        open_idx(path, 3).values.tobytes()
    assert tracemalloc.get_traced_memory()[1] < 2e6
    tracemalloc.stop()
    assert str(path) in str(error.value)


def test_labels_from_1_are_the_first_class(tmp_path):
    """EMNIST counts its letters from 1."""
    write_set(tmp_path, images=3, labels=3)
    for prefix in ("train", "t10k"):
        (tmp_path / f"{prefix}-labels-idx1-ubyte").write_bytes(idx((3,), [3, 1, 2]))
    assert read("idx", tmp_path, 9, {}).first_class == 1


def test_a_file_under_another_name_is_named(tmp_path):
    write_set(tmp_path)
    (tmp_path / "train-images-idx3-ubyte").rename(tmp_path / "letters-train-images-idx3-ubyte")
    with pytest.raises(UserError, match=r"file not found; rename the file with this content: letters-train-"):
        read("idx", tmp_path, 9, {})
