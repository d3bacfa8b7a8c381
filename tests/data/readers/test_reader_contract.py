"""What all readers have in common: shards of any size hold the same samples, and errors name the file."""

import gzip
import pickle
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from PIL import Image

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.catalog import find_dataset
from nnlo_lib.data.fetch.fetch import fetch
from nnlo_lib.data.readers import base
from nnlo_lib.data.readers.base import read, shard_ranges

SAMPLES = 7
PIXELS = np.random.default_rng(0).integers(0, 256, (SAMPLES, 3072), np.uint8)
LABELS = np.arange(SAMPLES) % 2


@dataclass(frozen=True)
class Case:
    """A reader with a folder of files that hold SAMPLES training samples."""

    reader: str
    write: Callable[[Path], Any]
    shape: tuple[int, ...]
    dtype: str
    file: str = ""  # some training samples are made of it; empty: there is none, or any text is right
    absent: str = ""  # text of the error for an empty folder
    options: dict[str, Any] = field(default_factory=dict)

    def contents(self, folder, shard_size=1000):
        return read(self.reader, folder, shard_size, self.options)

    def blocks(self, folder, shard_size=1000):
        return [unit.read() for unit in self.contents(folder, shard_size).units if unit.split == "train"]


def hdf5(folder):
    with h5py.File(folder / "a.h5", "w") as file:
        file["features"], file["labels"] = PIXELS[:, :4], LABELS


def npy(folder):
    np.save(folder / "x.npy", PIXELS[:, :4])
    np.save(folder / "y.npy", LABELS)


def idx(folder):
    for prefix in ("train", "t10k"):
        header, labels = struct.pack(">4I", 2051, SAMPLES, 5, 4), struct.pack(">2I", 2049, SAMPLES)
        (folder / f"{prefix}-images-idx3-ubyte.gz").write_bytes(
            gzip.compress(header + PIXELS[:, :20].tobytes())
        )
        (folder / f"{prefix}-labels-idx1-ubyte").write_bytes(labels + LABELS.astype("u1").tobytes())


def cifar_100(folder):
    for name in ("train", "test"):
        coarse = np.zeros(SAMPLES, np.uint8)
        rows = np.column_stack([coarse, LABELS.astype(np.uint8), PIXELS])
        (folder / f"{name}.bin").write_bytes(rows.tobytes())


def cifar_10(folder):
    for number, rows in enumerate(np.array_split(np.arange(SAMPLES), 5), start=1):
        content = {b"data": PIXELS[rows], b"labels": LABELS[rows].tolist()}
        (folder / f"data_batch_{number}").write_bytes(pickle.dumps(content, protocol=2))
    (folder / "test_batch").write_bytes(pickle.dumps(content, protocol=2))


def images(folder):
    for split, number in ((split, number) for split in ("train", "test") for number in range(SAMPLES)):
        path = folder / split / "ab"[LABELS[number]] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(PIXELS[number, :108].reshape(6, 6, 3)).save(path)


def texts(folder):
    for split, number in ((split, number) for split in ("train", "test") for number in range(SAMPLES)):
        path = folder / split / "ab"[LABELS[number]] / f"{number}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"the film {number} is it")


def csv(folder):
    rows = np.column_stack([PIXELS[:, :4], LABELS])
    np.savetxt(folder / "a.csv", rows, "%d", ",", header="a,b,c,d,label", comments="")


def of_catalog(name):
    return lambda folder: fetch(find_dataset(name), folder)


ARRAYS = "file 'a.h5' not found"
CASES = {
    "hdf5": Case("arrays", hdf5, (4,), "u1", "a.h5", ARRAYS, {"train": "a.h5"}),
    "npz": Case(
        "arrays", lambda folder: np.savez(folder / "a.npz", features=PIXELS[:, :4], labels=LABELS), (4,), "u1",
        "a.npz", "file 'a.npz' not found", {"train": "a.npz"},
    ),
    "npy": Case("arrays", npy, (4,), "u1", "x.npy", "file 'x.npy y.npy' not found", {"train": "x.npy y.npy"}),
    "idx": Case(
        "idx", idx, (1, 5, 4), "u1", "train-images-idx3-ubyte.gz",
        r"train-images-idx3-ubyte\.gz: file not found; .*nnlo task fetch",
    ),
    "binary cifar": Case("cifar", cifar_100, (3, 32, 32), "u1", "train.bin", r"expected data_batch_1\.bin"),
    "pickled cifar": Case("cifar", cifar_10, (3, 32, 32), "u1", "data_batch_2", r"expected data_batch_1\.bin"),
    "folder": Case(
        "folder", images, (3, 6, 6), "u1", "train/a/0.png", "expected <split>/<class>/<image>",
        {"size": 6, "resize": "none"},
    ),
    "csv": Case(
        "table", csv, (4,), "f4", "", r"no file in .* matches a\.csv",  # any first lines of a table are a table
        {"train": "a.csv", "label": "label", "test_fraction": 0.0},
    ),
    "texts": Case("texts", texts, (8,), "i4", "", "no folders train and test", {"words": 9, "length": 8}),
    "digits": Case(
        "digits", of_catalog("digits"), (1, 8, 8), "u1", "digits.csv.gz", r"nnlo task fetch --dataset digits"
    ),
    "diabetes": Case(
        "diabetes", of_catalog("diabetes"), (10,), "f4", "diabetes_data_raw.csv.gz", r"diabetes_data_raw\.csv\.gz"
    ),
    "synthetic": Case(
        "synthetic", lambda folder: None, (2, 3), "u1", options={"shape": [2, 3], "samples": SAMPLES}
    ),
}  # fmt: skip
ALL = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
OF_FILES = pytest.mark.parametrize(
    "case", [each for each in CASES.values() if each.file], ids=lambda each: each.file
)


def joined(blocks):
    return np.concatenate([block.inputs[0] for block in blocks]), np.concatenate(
        [block.labels for block in blocks]
    )


@ALL
def test_shards_of_any_size_hold_the_same_samples(tmp_path, monkeypatch, case):
    """The number of samples or bytes of a shard is limited; a unit is read in another process."""
    case.write(tmp_path)
    (whole,) = case.blocks(tmp_path, 10_000)
    count = len(whole.labels)
    assert (whole.inputs[0].dtype, whole.inputs[0].shape) == (case.dtype, (count, *case.shape))
    assert len(whole.labels.shape) == 1
    units = [unit for unit in case.contents(tmp_path, 3).units if unit.split == "train"]
    shards = -(-count // 3)
    assert [unit.name for unit in units] == [f"train-{index:05d}-of-{shards:05d}" for index in range(shards)]
    by_number = [pickle.loads(pickle.dumps(unit)).read() for unit in units]
    monkeypatch.setattr(base, "MAX_SHARD_BYTES", 3 * whole.inputs[0][:1].nbytes)
    for blocks in (by_number, case.blocks(tmp_path)):
        assert [len(block.labels) for block in blocks] == [3] * (count // 3) + [count % 3] * (count % 3 > 0)
        features, labels = joined(blocks)
        assert np.array_equal(features, whole.inputs[0])
        assert np.array_equal(labels, whole.labels)


def test_a_shard_has_at_most_so_many_bytes_and_at_least_one_sample():
    size = base.MAX_SHARD_BYTES // 10
    assert [end - start for _, start, end in shard_ranges("train", 25, 10_000, size)] == [10, 10, 5]
    assert len(shard_ranges("train", 25, 4, size)) == 7
    assert len(shard_ranges("train", 3, 10_000, 100 * size)) == 3


@OF_FILES
@pytest.mark.filterwarnings("ignore:loadtxt")
def test_a_damaged_file_is_named_or_read_alike(tmp_path, case):
    case.write(tmp_path)
    path = tmp_path / case.file
    good, whole, refused = path.read_bytes(), joined(case.blocks(tmp_path)), 0
    damaged = [good[: len(good) * part // 8] for part in range(8)] + [good[:-1], b"<html>not found</html>"]
    for content in damaged:
        path.write_bytes(content)
        try:
            found = joined(case.blocks(tmp_path))
        except UserError as error:
            refused += case.file in str(error)
        else:
            assert all(np.array_equal(one, other) for one, other in zip(found, whole, strict=True))
    assert refused >= len(damaged) - 1  # the end of a PNG file holds no pixels


@OF_FILES
def test_a_file_that_was_removed_after_it_was_listed_is_named(tmp_path, case):
    """A reader that holds all samples in memory notices it in the next call."""
    case.write(tmp_path)
    units = case.contents(tmp_path).units
    (tmp_path / case.file).unlink()
    with pytest.raises(UserError, match=case.file.replace(".", r"\.")):
        _ = [unit.read() for unit in units] + case.blocks(tmp_path)


@pytest.mark.parametrize(
    "case", [each for each in CASES.values() if each.absent], ids=lambda each: each.reader
)
def test_an_empty_folder_is_refused_with_the_files_wanted(tmp_path, case):
    with pytest.raises(UserError, match=case.absent):
        case.contents(tmp_path)
