import gzip
import resource
import signal
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest

from nnlo_lib.data import store
from nnlo_lib.data.catalog import DIGITS, MNIST
from nnlo_lib.data.manifest import Manifest
from nnlo_lib.data.readers import Samples
from nnlo_lib.data.split import Split
from nnlo_lib.data.store import convert
from nnlo_lib.errors import UserError

SUFFIX = {"hdf5": "h5", "npz": "npz"}


def listing(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()} if folder.exists() else {}


def mnist_raw(folder: Path, labels: list[int]) -> Path:
    """A set in MNIST's files with these labels for both splits; image i is filled with the byte i."""
    for prefix in ("train", "t10k"):
        images = b"".join(bytes([index % 256]) * 784 for index in range(len(labels)))
        header = struct.pack(">4I", 2051, len(labels), 28, 28)
        (folder / f"{prefix}-images-idx3-ubyte.gz").write_bytes(gzip.compress(header + images, 1))
        (folder / f"{prefix}-labels-idx1-ubyte").write_bytes(
            struct.pack(">2I", 2049, len(labels)) + bytes(labels)
        )
    return folder


def test_layout_on_disk(digits):
    suffix = SUFFIX[digits.format]
    shards = [f"train-{index:05d}-of-00004.{suffix}" for index in range(4)]
    assert sorted(listing(digits.folder)) == ["manifest.json", f"test-00000-of-00001.{suffix}", *shards]
    assert [shard.samples for shard in digits.splits["train"].shards] == [400, 400, 400, 242]
    assert Manifest.load(digits.folder / "manifest.json") == digits
    digits.verify()


def test_files_are_what_any_program_reads(digits):
    """Read a shard with h5py or numpy alone."""
    path = digits.folder / digits.splits["train"].shards[1].file
    opened = h5py.File(path) if digits.format == "hdf5" else np.load(path)
    with opened as shard:
        features, labels = shard["features"][:], shard["labels"][:]
    assert (features.shape, features.dtype) == ((400, 1, 8, 8), np.uint8)
    assert (labels.shape, labels.dtype) == ((400,), np.int64)
    split = Split(digits, "train")
    ours, classes = split.take(np.arange(400, 800))
    assert np.array_equal(ours, features)
    assert np.array_equal(classes, labels)


def test_both_formats_hold_all_of_mnist(shared_data, tmp_path):
    raw = shared_data / "mnist"
    stores = [convert(MNIST, raw, tmp_path / format, format, 7000) for format in ("hdf5", "npz")]
    for name, prefix, count in (("train", "train", 60_000), ("test", "t10k", 10_000)):
        pixels = gzip.decompress((raw / f"{prefix}-images-idx3-ubyte.gz").read_bytes())[16:]
        for manifest in stores:
            assert manifest.splits[name].samples == count
            features, labels = Split(manifest, name).take(np.arange(count))
            assert features.tobytes() == pixels
            assert np.bincount(labels).tolist()[:2] == ([5923, 6742] if name == "train" else [980, 1135])


def test_conversion_repeats_to_the_byte(digits, digits_raw, tmp_path):
    again = convert(DIGITS, digits_raw, tmp_path, digits.format, 400)
    assert again.splits == digits.splits


def test_shards_of_an_earlier_conversion_go(digits_raw, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / ".train-00003-of-00009.h5.x1y2.part").write_text("left by a conversion that was killed")
    convert(DIGITS, digits_raw, tmp_path, "npz", 100)
    convert(DIGITS, digits_raw, tmp_path, "hdf5", 2000)
    assert sorted(listing(tmp_path)) == [
        "manifest.json",
        "notes.txt",
        "test-00000-of-00001.h5",
        "train-00000-of-00001.h5",
    ]


@pytest.mark.parametrize("format", ["hdf5", "npz"])
def test_label_out_of_range_is_named_before_anything_is_written(tmp_path, format):
    labels = [value % 10 for value in range(25)]
    labels[17] = 12
    raw = mnist_raw(tmp_path, labels)
    with pytest.raises(UserError, match=r"train-labels-idx1-ubyte: sample 17 of the train set has label 12"):
        convert(MNIST, raw, tmp_path / "store", format, 5)
    assert listing(tmp_path / "store") == {}


def test_negative_label_is_refused(tmp_path, monkeypatch):
    """IDX cannot hold one, but a reader that counts from 1 could make one."""
    piece = np.zeros((2, 1, 8, 8), np.uint8), np.array([0, -1])
    samples = Samples(2, tmp_path / "labels", lambda size: iter([piece]))
    monkeypatch.setattr(store, "read", lambda reader, raw: {"train": samples})
    with pytest.raises(UserError, match="labels: sample 1 of the train set has label -1"):
        convert(DIGITS, tmp_path, tmp_path / "store", "npz", 5)


def test_images_of_another_size_are_refused(tmp_path):
    raw = mnist_raw(tmp_path, [0, 1, 2])
    with pytest.raises(UserError, match=r"images are \(1, 28, 28\), but those of mnist are \(1, 32, 32\)"):
        convert(replace(MNIST, shape=(1, 32, 32)), raw, tmp_path / "store", "npz", 5)
    assert listing(tmp_path / "store") == {}


def test_empty_set_is_refused(tmp_path):
    with pytest.raises(UserError, match="holds no train sample"):
        convert(MNIST, mnist_raw(tmp_path, []), tmp_path / "store", "npz", 5)


def test_shard_size_must_be_positive(digits_raw, tmp_path):
    with pytest.raises(UserError, match="shard_size 0"):
        convert(DIGITS, digits_raw, tmp_path, "npz", 0)


def test_failure_leaves_the_earlier_store_whole(digits_raw, tmp_path, monkeypatch):
    convert(DIGITS, digits_raw, tmp_path, "npz", 400)
    before = listing(tmp_path)
    written = []

    def fail_at_third(*args):
        if len(written) == 2:
            raise OSError(28, "No space left on device")
        written.append(args)

    monkeypatch.setattr(store, "write_shard", fail_at_third)
    with pytest.raises(UserError, match=r"cannot write .*train-00002-of-00015.npz.*No space left"):
        convert(DIGITS, digits_raw, tmp_path, "npz", 100)
    assert listing(tmp_path) == before


@pytest.mark.parametrize("format", ["hdf5", "npz"])
def test_full_disk_is_a_sentence(digits_raw, tmp_path, format):
    """A limit on the size of a file stands in for the disk."""

    def limited():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))

    command = [sys.executable, "scripts/convert.py", "--dataset", "digits", "--raw", digits_raw]
    command += ["--target", tmp_path / "store", "--format", format]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, preexec_fn=limited)
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith(f"nnlo: error: cannot write {tmp_path / 'store' / 'train-00000-of-00001'}")
    assert "Traceback" not in done.stderr
    assert listing(tmp_path / "store") == {}
