"""Conversions: the files of a store, samples that are refused, and conversions that are interrupted or repeated."""

import fcntl
import gzip
import os
import resource
import shutil
import signal
import struct
from dataclasses import replace
from functools import partial
from pathlib import Path

import h5py
import numpy as np
import pytest
from helpers.conversions import conversion_for

from nnlo_lib.core import file_lock
from nnlo_lib.core.errors import UserError
from nnlo_lib.data import source_identity
from nnlo_lib.data.catalog import DIGITS, MNIST, DatasetSpec, find_dataset
from nnlo_lib.data.fetch.fetch import fetch
from nnlo_lib.data.readers.base import ConversionUnit, DatasetContents, SampleBlock
from nnlo_lib.data.store import convert as converting
from nnlo_lib.data.store.convert import convert
from nnlo_lib.data.store.manifest import DataManifest
from nnlo_lib.data.store.shard import write_shard
from nnlo_lib.data.store.split import Split


def listing(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.*"))


def stored(
    dataset, raw: Path, target: Path, format: str, shard_size: int, processes: int = 1
) -> DataManifest:
    return convert(conversion_for(dataset, raw, target, format, shard_size), processes)


def missing(dataset, raw: Path, target: Path, shard_size: int) -> list[str]:
    """Return the splits of the shards that a conversion to NPZ would make."""
    job = conversion_for(dataset, raw, target, "npz", shard_size)
    return [unit.split for unit in job.contents.units if job.record(unit) is None]


def mnist_raw(folder: Path, labels: list[int]) -> Path:
    """Write files in MNIST's format with these labels for both splits; image i is filled with the byte i % 256."""
    for prefix in ("train", "t10k"):
        images = b"".join(bytes([index % 256]) * 784 for index in range(len(labels)))
        header = struct.pack(">4I", 2051, len(labels), 28, 28)
        (folder / f"{prefix}-images-idx3-ubyte.gz").write_bytes(gzip.compress(header + images, 1))
        header = struct.pack(">2I", 2049, len(labels))
        (folder / f"{prefix}-labels-idx1-ubyte").write_bytes(header + bytes(labels))
    return folder


def test_layout_on_disk(digits):
    suffix = {"hdf5": "h5", "npz": "npz"}[digits.format]
    shards = ["test-00000-of-00001", *(f"train-{index:05d}-of-00004" for index in range(4))]
    assert listing(digits.folder) == ["manifest.json", *(f"{name}.{suffix}" for name in shards)]
    assert listing(digits.folder / "shards") == [f"{name}.json" for name in shards]
    assert [shard.samples for shard in digits.splits["train"].shards] == [400, 400, 400, 242]
    assert DataManifest.load(digits.folder / "manifest.json") == digits
    digits.verify()


def test_a_shard_is_read_with_h5py_or_numpy_alone(digits):
    path = digits.folder / digits.splits["train"].shards[1].file
    with h5py.File(path) if digits.format == "hdf5" else np.load(path) as shard:
        features, labels = shard["features"][:], shard["labels"][:]
    assert (features.shape, features.dtype) == ((400, 1, 8, 8), np.uint8)
    assert (labels.shape, labels.dtype) == ((400,), np.int64)
    (ours,), classes = Split(digits, "train").take(np.arange(400, 800))
    assert np.array_equal(ours, features)
    assert np.array_equal(classes, labels)


@pytest.mark.processes
def test_imagenet_in_both_formats_is_what_the_reader_gives(shared_data, tmp_path):
    for format, processes in (("hdf5", 1), ("npz", 2)):
        source = shared_data / "imagenet_tfrecord"
        job = conversion_for(find_dataset("imagenet"), source, tmp_path / format, format, 1)
        manifest = convert(job, processes)
        assert {name: part.samples for name, part in manifest.splits.items()} == {"train": 64, "test": 16}
        manifest.verify()
        start = {"train": 0, "test": 0}
        for unit in job.contents.units:
            block, first = unit.read(), start[unit.split]
            (images,), labels = Split(manifest, unit.split).take(np.arange(first, first + 16))
            assert np.array_equal(images, block.inputs[0])
            assert np.array_equal(labels, block.labels[:, 0] - 1)
            start[unit.split] += 16


@pytest.mark.processes
def test_conversion_repeats_to_the_byte_in_any_number_of_processes_and_jobs(digits, digits_raw, tmp_path):
    """The workflow's rules convert_shard and convert make the same store if shards are converted in reverse order."""
    assert stored(DIGITS, digits_raw, tmp_path / "two", digits.format, 400, 2).splits == digits.splits
    job = conversion_for(DIGITS, digits_raw, tmp_path / "parts", digits.format, 400)
    for unit in reversed(job.contents.units):
        job.convert_unit(job.layout, unit)
    assert not (tmp_path / "parts" / "manifest.json").exists()
    assert replace(convert(job), folder=digits.folder) == digits


def test_a_conversion_waits_for_another_one_to_the_same_folder(digits_raw, tmp_path, monkeypatch):
    with (tmp_path / converting.LOCK_FILE).open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with monkeypatch.context() as patch:
            patch.setattr(converting, "LOCK_TIMEOUT_SECONDS", 0.0)
            with pytest.raises(UserError, match="another process is converting to"):
                stored(DIGITS, digits_raw, tmp_path, "npz", 400)
        assert listing(tmp_path) == [".lock"]
        # The first pause between two attempts to lock ends the other conversion.
        monkeypatch.setattr(file_lock.time, "sleep", lambda _: fcntl.flock(other, fcntl.LOCK_UN))
        stored(DIGITS, digits_raw, tmp_path, "npz", 400).verify()


def test_files_of_an_earlier_conversion_are_removed(digits_raw, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / ".train-00003-of-00009.h5.x1y2.part").write_text("left by a conversion that was killed")
    stored(DIGITS, digits_raw, tmp_path, "npz", 400)
    stored(DIGITS, digits_raw, tmp_path, "hdf5", 2000)
    shards = ["test-00000-of-00001.h5", "train-00000-of-00001.h5"]
    assert listing(tmp_path) == ["manifest.json", "notes.txt", *shards]


def conversion_of(monkeypatch, tmp_path, blocks, dataset=DIGITS, **contents):
    """Return a conversion of `blocks`, one a unit, as all training data of a stand-in reader with these contents."""
    (tmp_path / "origin").touch()
    names = [f"train-{index:05d}-of-{len(blocks):05d}" for index in range(len(blocks))]
    units = tuple(
        ConversionUnit("train", name, tmp_path / "origin", partial(next, iter([block])))
        for name, block in zip(names, blocks, strict=True)
    )
    monkeypatch.setattr(source_identity, "read", lambda *_: DatasetContents(units, **contents))
    return conversion_for(dataset, tmp_path, tmp_path / "store", "npz", 5)


@pytest.mark.parametrize(("labels", "first", "wrong"), [([0, -1], 0, -1), ([1, 11], 1, 11), ([0, 1], 1, 0)])
def test_a_label_below_or_above_the_classes_is_refused(tmp_path, monkeypatch, labels, first, wrong):
    block = SampleBlock((np.zeros((2, 1, 8, 8), np.uint8),), np.array(labels))
    with pytest.raises(UserError, match=f"train-00000-of-00001 has label {wrong}, but the classes"):
        convert(conversion_of(monkeypatch, tmp_path, [block], first_class=first))


def test_classes_may_start_at_one_in_a_column(tmp_path, monkeypatch):
    """Labels may have shape (n, 1), start at 1 and have their own keys, as int16 in PyDTNN's ImageNet."""
    pixels = np.arange(3 * 2 * 4, dtype=np.uint8).reshape(3, 2, 2, 2)
    block = SampleBlock((pixels,), np.array([[1], [3], [2]], np.int16))
    names = {"inputs": ("x",), "labels": "y", "first_class": 1}
    job = conversion_of(monkeypatch, tmp_path, [block], DatasetSpec("mine", "tfrecord"), **names)
    manifest = convert(job)
    assert manifest.classes == 3
    assert Split(manifest, "train").labels.tolist() == [0, 2, 1]
    with np.load(tmp_path / "store" / "train-00000-of-00001.npz") as file:
        assert {name: file[name].dtype.name for name in file} == {"x": "uint8", "y": "int16"}


def test_several_inputs_and_targets_that_are_no_classes(tmp_path, monkeypatch):
    rng = np.random.default_rng(1)
    inputs = rng.normal(size=(7, 4, 3)).astype(np.float32), rng.integers(0, 99, (7, 5))
    targets = rng.normal(size=(7, 2))
    blocks = [
        SampleBlock(tuple(each[part] for each in inputs), targets[part])
        for part in (slice(0, 5), slice(5, 7))
    ]
    names = {"inputs": ("features/a", "features/b")}
    job = conversion_of(monkeypatch, tmp_path, blocks, DatasetSpec("m", "arrays"), **names)
    manifest = DataManifest.load(convert(job).folder)
    assert manifest.classes is None
    taken = [6, 0, 4]
    (first, second), labels = Split(manifest, "train").take(np.array(taken))
    assert np.array_equal(first, inputs[0][taken])
    assert np.array_equal(second, inputs[1][taken])
    assert np.array_equal(labels, targets[taken])


@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.processes)])
def test_skipped_records_are_printed_and_counted(tmp_path, monkeypatch, capfd, processes):
    pixels, labels = np.zeros((2, 1, 8, 8), np.uint8), np.array([0, 1])
    blocks = [SampleBlock((pixels,), labels, skipped) for skipped in ((), ("record 7: is damaged",))]
    manifest = convert(conversion_of(monkeypatch, tmp_path, blocks), processes)
    assert [shard.skipped for shard in manifest.splits["train"].shards] == [0, 1]
    assert capfd.readouterr().err == "train-00001-of-00002.npz: skipped record 7: is damaged\n"


def test_shards_of_different_shapes_are_refused(tmp_path, monkeypatch):
    blocks = [SampleBlock((np.zeros((2, size)),), np.zeros(2)) for size in (3, 4)]
    message = r"train-00001-of-00002.npz: the samples are features \(4,\).*train-00000.* \(3,\)"
    with pytest.raises(UserError, match=message):
        convert(conversion_of(monkeypatch, tmp_path, blocks, DatasetSpec("mine", "arrays")))


@pytest.mark.parametrize(
    ("labels", "dataset", "shard_size", "message"),
    [
        ([0, 1, 2], replace(MNIST, shape=(1, 32, 32)), 5, r"shape \(1, 28, 28\), but samples of mnist have \(1, 32, 32\)"),
        ([], MNIST, 5, "no training samples of .* found"),
        ([0], MNIST, 0, r"data\.shard_size: must be at least 1, not 0"),
        ([*range(7), 12], MNIST, 5, "train-labels-idx1-ubyte: sample 2 of shard train-00001-of-00002 has label 12"),
    ],
)  # fmt: skip
def test_wrong_samples_and_sizes_make_no_store(tmp_path, labels, dataset, shard_size, message):
    raw = mnist_raw(tmp_path, labels)
    with pytest.raises(UserError, match=message):
        stored(dataset, raw, tmp_path / "store", "npz", shard_size)
    assert not (tmp_path / "store" / "manifest.json").exists()


def test_an_interrupted_conversion_makes_only_the_missing_shards(digits_raw, tmp_path, monkeypatch):
    whole = stored(DIGITS, digits_raw, tmp_path / "whole", "npz", 400)
    store, written = tmp_path / "store", []

    def die_at_third(path, *rest):
        if len(written) == 2:
            raise KeyboardInterrupt
        written.append(path)
        write_shard(path, *rest)

    monkeypatch.setattr(converting, "write_shard", die_at_third)
    with pytest.raises(KeyboardInterrupt):
        stored(DIGITS, digits_raw, store, "npz", 400)
    made = listing(store)
    assert made == ["train-00000-of-00004.npz", "train-00001-of-00004.npz"]
    times = [(store / name).stat().st_mtime_ns for name in made]
    monkeypatch.setattr(converting, "write_shard", write_shard)
    assert stored(DIGITS, digits_raw, store, "npz", 400).splits == whole.splits
    assert [(store / name).stat().st_mtime_ns for name in made] == times


def test_only_shards_of_files_that_changed_are_converted_again(digits_raw, tmp_path):
    raw, store = tmp_path / "raw", tmp_path / "store"
    shutil.copytree(digits_raw, raw)
    stored(DIGITS, raw, store, "npz", 400)
    fetch(DIGITS, raw)  # changes no file
    assert missing(DIGITS, raw, store, 400) == []
    os.utime(raw / "digits.csv.gz", ns=(1, 1))
    assert missing(DIGITS, raw, store, 400) == ["train"] * 4 + ["test"]
    for part in ("images", "labels"):
        mnist_raw(raw, [0] * 25)
        stored(MNIST, raw, tmp_path / part, "npz", 5)
        os.utime(next(raw.glob(f"train-{part}*")), ns=(1, 1))
        assert missing(MNIST, raw, tmp_path / part, 5) == ["train"] * 5


def test_a_file_that_changes_during_the_conversion_loses_no_shard(tmp_path, monkeypatch):
    """Once per shard of the first round, the labels are written again; the store has the last ones."""
    raw, written = mnist_raw(tmp_path, [0] * 25), []

    def changing(path, *rest):
        write_shard(path, *rest)
        written.append(path)
        if len(written) <= 10:
            mnist_raw(tmp_path, [len(written) % 10] * 25)
            os.utime(raw / "train-labels-idx1-ubyte", ns=(0, len(written)))
            os.utime(raw / "t10k-labels-idx1-ubyte", ns=(0, len(written)))

    monkeypatch.setattr(converting, "write_shard", changing)
    manifest = stored(MNIST, raw, tmp_path / "store", "npz", 5)
    assert {name: part.samples for name, part in manifest.splits.items()} == {"train": 25, "test": 25}
    assert Split(manifest, "train").labels.tolist() == [0] * 25  # the tenth writing
    assert len(written) == 20


def test_a_file_that_changes_in_every_round_is_refused(tmp_path, monkeypatch):
    raw, written = mnist_raw(tmp_path, [0] * 25), []

    def changing(path, *rest):
        write_shard(path, *rest)
        written.append(path)
        os.utime(raw / "train-labels-idx1-ubyte", ns=(0, len(written)))

    monkeypatch.setattr(converting, "write_shard", changing)
    with pytest.raises(UserError, match=r"train-labels-idx1-ubyte: the file changes while it is converted"):
        stored(MNIST, raw, tmp_path / "store", "npz", 5)
    assert not (tmp_path / "store/manifest.json").exists()


@pytest.mark.parametrize("format", ["hdf5", "npz"])
def test_a_full_disk_leaves_no_store_that_mixes_two_conversions(digits_raw, tmp_path, format):
    """The limit on the file size stands for a full disk, which test_conversion_resources.py fills."""
    stored(DIGITS, digits_raw, tmp_path, "npz", 100)
    limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, limits[1]))
    try:
        with pytest.raises(UserError, match=rf"cannot write {tmp_path}/train-00000-of-00001.*File too large"):
            stored(DIGITS, digits_raw, tmp_path, format, 10_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert not (tmp_path / "manifest.json").exists()
    assert not list(tmp_path.rglob("*.part"))


def test_the_moments_of_a_store_are_those_of_its_training_samples(digits):
    train = Split(digits, "train")
    (pixels,), _ = train.take(np.arange(len(train)))
    assert digits.inputs[0].mean == pytest.approx([pixels.mean()], rel=1e-12)
    assert digits.inputs[0].std == pytest.approx([pixels.std()], rel=1e-12)
