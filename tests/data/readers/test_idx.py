import gzip
import multiprocessing
import struct
import tracemalloc
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.fetch import gzip_content
from nnlo_lib.data.readers import read
from nnlo_lib.data.readers.idx_file import open_idx


def idx(shape, values, magic=b"\0\0\x08"):
    return magic + bytes([len(shape)]) + struct.pack(f">{len(shape)}I", *shape) + bytes(values)


GOOD = idx((5, 2, 3), range(30))


def write_set(folder, images=5, labels=5, pack=bytes, suffix=""):
    for prefix in ("train", "t10k"):
        pixels = [value % 251 for value in range(images * 6)]
        (folder / f"{prefix}-images-idx3-ubyte{suffix}").write_bytes(pack(idx((images, 2, 3), pixels)))
        classes = [value % 10 for value in range(labels)]
        (folder / f"{prefix}-labels-idx1-ubyte{suffix}").write_bytes(pack(idx((labels,), classes)))


KINDS = {"ubyte": "u1", "byte": "i1", "short": ">i2", "int": ">i4", "float": ">f4", "double": ">f8"}
STORED = {"ubyte": "u1", "byte": "f4", "short": "f4", "int": "f8", "float": "f4", "double": "f8"}
CODES = {"ubyte": 8, "byte": 9, "short": 11, "int": 12, "float": 13, "double": 14}


def write_typed(folder, array, kind, content="images"):
    raw = idx(array.shape, array.astype(KINDS[kind]).tobytes(), bytes([0, 0, CODES[kind]]))
    for prefix in ("train", "test"):
        (folder / f"{prefix}-{content}-idx{array.ndim}-{kind}").write_bytes(raw)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(5, 4), (5, 2, 3), (5, 3, 2, 2)])
def test_other_types_and_dimensions_by_the_name_of_the_file(tmp_path, kind, shape):
    values = (np.arange(np.prod(shape)) - (0 if kind == "ubyte" else 7)).reshape(shape)
    write_typed(tmp_path, values, kind)
    write_typed(tmp_path, np.arange(5), "int", "labels")
    for split in ("train", "test"):
        blocks = blocks_of(split, tmp_path, 2)
        found = np.concatenate([block.inputs[0] for block in blocks])
        assert found.dtype == STORED[kind]
        assert found.shape == ((5, 1, 2, 3) if len(shape) == 3 else shape)
        assert np.array_equal(found.reshape(shape), values)
        assert np.concatenate([block.labels for block in blocks]).tolist() == [0, 1, 2, 3, 4]


def test_labels_in_rows_or_floats_are_refused(tmp_path):
    write_typed(tmp_path, np.zeros((5, 4)), "float")
    write_typed(tmp_path, np.zeros(5), "float", "labels")
    with pytest.raises(UserError, match="labels must be integers in 1 dimension"):
        read("idx", tmp_path, 9, {})


def test_two_files_for_one_place_are_refused(tmp_path):
    write_set(tmp_path)
    (tmp_path / "train-images.idx3-int").touch()
    with pytest.raises(
        UserError, match=r"several files of one kind: train-images-idx3-ubyte, train-images\.idx3-int"
    ):
        read("idx", tmp_path, 9, {})


@settings(max_examples=200, deadline=None)
@given(
    file=st.sampled_from(["images-idx3-ubyte", "labels-idx1-ubyte"]), data=st.data(), bit=st.integers(0, 7)
)
def test_a_flipped_bit_of_a_plain_header_is_refused(tmp_path_factory, file, data, bit):
    folder = tmp_path_factory.mktemp("flipped")
    write_set(folder)
    at = data.draw(st.integers(0, 15 if file[0] == "i" else 7))
    raw = bytearray((folder / f"train-{file}").read_bytes())
    raw[at] ^= 1 << bit
    (folder / f"train-{file}").write_bytes(raw)
    with pytest.raises(UserError, match=f"train-{file}: "):
        read("idx", folder, 9, {})


@settings(max_examples=50, deadline=None)
@given(ranges=st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)).map(sorted), max_size=9))
def test_records_in_any_order_are_right(tmp_path_factory, ranges):
    """The stream of the last call is used again if it is not beyond the wanted records."""
    folder = tmp_path_factory.mktemp("order")
    write_set(folder, images=7, labels=7, pack=gzip.compress, suffix=".gz")
    images = open_idx(folder / "train-images-idx3-ubyte.gz", 3)
    for start, end in ranges:
        assert images.records(start, end).ravel().tolist() == list(range(start * 6, end * 6))


def test_consecutive_shards_decompress_the_file_once(tmp_path, monkeypatch):
    opened = []
    write_set(tmp_path, images=200, labels=200, pack=gzip.compress, suffix=".gz")
    units = read("idx", tmp_path, 2, {}).units
    monkeypatch.setattr(
        gzip_content.gzip, "open", lambda path: opened.append(path.name) or gzip.GzipFile(path)
    )
    monkeypatch.setattr(gzip._GzipReader, "_rewind", lambda self: pytest.fail("read from the start again"))
    for unit in units:
        assert len(unit.read().labels) == 2
    assert len(opened) == 4


@pytest.mark.processes
def test_processes_that_share_a_compressed_file_do_not_disturb_each_other(tmp_path):
    """The stream that is open when the processes are forked must not be used by them."""
    write_set(tmp_path, images=41, labels=41, pack=gzip.compress, suffix=".gz")
    units = read("idx", tmp_path, 1, {}).units
    units[0].read()
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("fork")) as pool:
        found = [block.inputs[0].ravel().tolist() for block in pool.map(_read, units)]
    assert found == [list((np.arange(6) + 6 * n) % 251) for n in range(41)] * 2


def _read(unit):
    return unit.read()


def blocks_of(split, folder, shard_size):
    return [unit.read() for unit in read("idx", folder, shard_size, {}).units if unit.split == split]


@pytest.mark.parametrize(("pack", "suffix"), [(bytes, ""), (gzip.compress, ".gz"), (bytes, ".gz")])
def test_plain_and_compressed_give_the_same(tmp_path, pack, suffix):
    write_set(tmp_path, images=7, labels=7, pack=pack, suffix=suffix)
    blocks = blocks_of("train", tmp_path, 3)
    assert [len(block.labels) for block in blocks] == [3, 3, 1]
    features = np.concatenate([block.inputs[0] for block in blocks])
    assert features.shape == (7, 1, 2, 3)
    assert features.dtype == np.uint8
    assert features.ravel().tolist() == list(range(42))
    assert np.concatenate([block.labels for block in blocks]).tolist() == list(range(7))


def test_units_are_named_by_split_and_place(tmp_path):
    write_set(tmp_path, images=7, labels=7)
    names = [unit.name for unit in read("idx", tmp_path, 4, {}).units]
    assert names == [f"{split}-{index:05d}-of-00002" for split in ("train", "test") for index in range(2)]


def test_mnist_against_bytes_counted_by_hand(shared_data):
    folder = shared_data / "mnist"
    images = gzip.decompress((folder / "t10k-images-idx3-ubyte.gz").read_bytes())
    labels = gzip.decompress((folder / "t10k-labels-idx1-ubyte.gz").read_bytes())
    assert struct.unpack(">4I", images[:16]) == (2051, 10_000, 28, 28)
    assert struct.unpack(">2I", labels[:8]) == (2049, 10_000)
    start = 0
    for block in blocks_of("test", folder, 999):
        for row in (0, len(block.labels) - 1):
            at = 16 + (start + row) * 784
            assert block.inputs[0][row].tobytes() == images[at : at + 784]
        assert block.labels.tolist() == list(labels[8 + start : 8 + start + len(block.labels)])
        start += len(block.labels)
    assert start == 10_000


def consume(path):
    content = open_idx(path, 3)
    for start in range(0, content.shape[0], 2):
        content.records(start, min(start + 2, content.shape[0]))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not an IDX file"),
        (b"\0\0\x08\x03\0\0", "not an IDX file"),
        (
            idx((30,), range(30)),
            r"not an IDX file of the type ubyte in 3 dimensions \(starts with 00 00 08 01",
        ),
        (idx((5, 2, 3), range(30), magic=b"\0\0\x0d"), "not an IDX file"),
        (b"<html>not found</html>", "not an IDX file"),
        (idx((2**32 - 1, 2**32 - 1, 2**32 - 1), range(30)), "declares"),
    ],
)
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_bad_header_is_refused(tmp_path, content, message, pack):
    path = tmp_path / "images"
    path.write_bytes(pack(content))
    with pytest.raises(UserError, match=message) as error:
        open_idx(path, 3)
    assert str(path) in str(error.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (GOOD[:-1], "declares 46 bytes, but the file has 45"),
        (GOOD + b"x", "declares 46 bytes, but the file has 47"),
        (gzip.compress(GOOD[:-1], mtime=0), "truncated, fewer"),
        (gzip.compress(GOOD + b"x", mtime=0), "more values than the header declares"),
        (gzip.compress(GOOD, mtime=0)[:-9], "truncated"),
        (gzip.compress(GOOD, mtime=0)[:-8] + bytes(8), "damaged"),
    ],
)
def test_bad_size_is_refused(tmp_path, content, message):
    path = tmp_path / "images"
    path.write_bytes(content)
    with pytest.raises(UserError, match=message) as error:
        consume(path)
    assert str(path) in str(error.value)


def test_every_flipped_bit_is_noticed_or_harmless(tmp_path):
    """A flipped bit in a compressed file gives an error that names the file, or the same values.

    Unused header fields are the bits without an effect.
    """
    whole = gzip.compress(GOOD, mtime=0)
    path, named = tmp_path / "images", []
    for at in range(len(whole) * 8):
        damaged = bytearray(whole)
        damaged[at // 8] ^= 1 << at % 8
        path.write_bytes(damaged)
        try:
            idx_file = open_idx(path, 3)
            half = idx_file.shape[0] // 2
            values = b"".join(
                idx_file.records(start, end).tobytes()
                for start, end in ((0, half), (half, idx_file.shape[0]))
            )
        except UserError as error:
            named.append(str(path) in str(error))
        else:
            assert values == bytes(range(30))
    assert all(named)
    assert len(named) > 200


def test_a_bomb_declared_is_refused_before_allocation(tmp_path):
    path = tmp_path / "images"
    path.write_bytes(gzip.compress(idx((100_000, 28, 28), bytes(100))))
    tracemalloc.start()
    with pytest.raises(UserError, match=r"declares 78,400,016 bytes"):
        consume(path)
    assert tracemalloc.get_traced_memory()[1] < 2e6
    tracemalloc.stop()


def test_images_and_labels_must_agree(tmp_path):
    write_set(tmp_path, images=5, labels=4)
    with pytest.raises(UserError, match=r"5 images, but .* 4 labels"):
        read("idx", tmp_path, 10, {})


def test_absent_file_is_named(tmp_path):
    with pytest.raises(UserError, match=r"train-images-idx3-ubyte\.gz: file not found; .*scripts/fetch\.py"):
        read("idx", tmp_path, 10, {})
