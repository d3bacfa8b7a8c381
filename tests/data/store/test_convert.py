import gzip
import os
import resource
import shutil
import signal
import struct
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import h5py
import numpy as np
import pytest
from helpers.conversions import conversion_for

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.catalog import DIGITS, MNIST, DatasetSpec, find_dataset
from nnlo_lib.data.fetch.fetch import fetch
from nnlo_lib.data.identity import source_identity
from nnlo_lib.data.readers import ConversionUnit, DatasetContents, SampleBlock
from nnlo_lib.data.store import conversion
from nnlo_lib.data.store.conversion import Conversion
from nnlo_lib.data.store.convert import convert
from nnlo_lib.data.store.manifest import DataManifest
from nnlo_lib.data.store.shard import write_shard
from nnlo_lib.data.store.split import Split

SUFFIX = {"hdf5": "h5", "npz": "npz"}


def listing(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.*")}


def stored(dataset, raw: Path, target: Path, format: str, shard_size: int) -> DataManifest:
    return convert(conversion_for(dataset, raw, target, format, shard_size))


def mnist_raw(folder: Path, labels: list[int]) -> Path:
    """Write files in MNIST's format with these labels for both splits; image i is filled with the byte i % 256."""
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
    records = [f"{Path(name).stem}.json" for name in ("test-00000-of-00001.h5", *shards)]
    assert sorted(listing(digits.folder / "shards")) == records
    assert [shard.samples for shard in digits.splits["train"].shards] == [400, 400, 400, 242]
    assert DataManifest.load(digits.folder / "manifest.json") == digits
    digits.verify()


def test_files_are_what_any_program_reads(digits):
    """A shard can be read with only h5py or numpy."""
    path = digits.folder / digits.splits["train"].shards[1].file
    opened = h5py.File(path) if digits.format == "hdf5" else np.load(path)
    with opened as shard:
        features, labels = shard["features"][:], shard["labels"][:]
    assert (features.shape, features.dtype) == ((400, 1, 8, 8), np.uint8)
    assert (labels.shape, labels.dtype) == ((400,), np.int64)
    split = Split(digits, "train")
    (ours,), classes = split.take(np.arange(400, 800))
    assert np.array_equal(ours, features)
    assert np.array_equal(classes, labels)


@pytest.mark.long
def test_both_formats_hold_all_of_mnist(shared_data, tmp_path):
    raw = shared_data / "mnist"
    stores = [stored(MNIST, raw, tmp_path / format, format, 7000) for format in ("hdf5", "npz")]
    for name, prefix, count in (("train", "train", 60_000), ("test", "t10k", 10_000)):
        pixels = gzip.decompress((raw / f"{prefix}-images-idx3-ubyte.gz").read_bytes())[16:]
        for manifest in stores:
            assert manifest.splits[name].samples == count
            (features,), labels = Split(manifest, name).take(np.arange(count))
            assert features.tobytes() == pixels
            assert np.bincount(labels).tolist()[:2] == ([5923, 6742] if name == "train" else [980, 1135])


def test_conversion_repeats_to_the_byte(digits, digits_raw, tmp_path):
    again = stored(DIGITS, digits_raw, tmp_path, digits.format, 400)
    assert again.splits == digits.splits


def test_shards_of_an_earlier_conversion_go(digits_raw, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / ".train-00003-of-00009.h5.x1y2.part").write_text("left by a conversion that was killed")
    stored(DIGITS, digits_raw, tmp_path, "npz", 100)
    stored(DIGITS, digits_raw, tmp_path, "hdf5", 2000)
    assert sorted(listing(tmp_path)) == [
        "manifest.json",
        "notes.txt",
        "test-00000-of-00001.h5",
        "train-00000-of-00001.h5",
    ]


@pytest.mark.parametrize("format", ["hdf5", "npz"])
def test_label_out_of_range_is_named_and_no_store_appears(tmp_path, format):
    labels = [value % 10 for value in range(25)]
    labels[17] = 12
    raw = mnist_raw(tmp_path, labels)
    with pytest.raises(
        UserError, match=r"train-labels-idx1-ubyte: sample 2 of shard train-00003-of-00005 has label 12"
    ):
        stored(MNIST, raw, tmp_path / "store", format, 5)
    assert not (tmp_path / "store" / "manifest.json").exists()


def conversion_of(monkeypatch, tmp_path, blocks: list[SampleBlock], dataset=DIGITS, **contents) -> Conversion:
    """Return a conversion of `blocks` as all training data of a stand-in reader.

    Args:
        monkeypatch: pytest's fixture.
        tmp_path: folder of the origin and of the store.
        blocks: samples, one unit per block.
        dataset: description of the data set.
        **contents: further arguments of DatasetContents.
    """
    (tmp_path / "origin").touch()
    units = [
        ConversionUnit(
            "train",
            f"train-{index:05d}-of-{len(blocks):05d}",
            tmp_path / "origin",
            partial(next, iter([block])),
        )
        for index, block in enumerate(blocks)
    ]
    monkeypatch.setattr(source_identity, "read", lambda *_: DatasetContents(tuple(units), **contents))
    return conversion_for(dataset, tmp_path, tmp_path / "store", "npz", 5)


@pytest.mark.parametrize(("labels", "first", "wrong"), [([0, -1], 0, -1), ([1, 11], 1, 11), ([0, 1], 1, 0)])
def test_label_below_or_above_the_classes_is_refused(tmp_path, monkeypatch, labels, first, wrong):
    block = SampleBlock((np.zeros((2, 1, 8, 8), np.uint8),), np.array(labels))
    with pytest.raises(UserError, match=f"train-00000-of-00001 has label {wrong}, but the classes"):
        convert(conversion_of(monkeypatch, tmp_path, [block], first_class=first))


def test_classes_may_count_from_one_in_a_column(tmp_path, monkeypatch):
    """Labels may have shape (n, 1), start at 1 and have their own keys, as int16 in PyDTNN's ImageNet."""
    pixels = np.arange(3 * 2 * 4, dtype=np.uint8).reshape(3, 2, 2, 2)
    block = SampleBlock((pixels,), np.array([[1], [3], [2]], np.int16))
    names = {"inputs": ("x",), "labels": "y", "first_class": 1}
    manifest = convert(
        conversion_of(monkeypatch, tmp_path, [block], DatasetSpec("mine", "tfrecord"), **names)
    )
    assert manifest.classes == 3
    split = Split(manifest, "train")
    assert split.labels.tolist() == [0, 2, 1]
    with np.load(tmp_path / "store" / "train-00000-of-00001.npz") as stored_file:
        assert {name: stored_file[name].dtype.name for name in stored_file} == {"x": "uint8", "y": "int16"}


def test_several_inputs_and_targets_that_are_no_classes(tmp_path, monkeypatch):
    rng = np.random.default_rng(1)
    inputs = rng.normal(size=(7, 4, 3)).astype(np.float32), rng.integers(0, 99, (7, 5))
    targets = rng.normal(size=(7, 2))
    blocks = [
        SampleBlock(tuple(each[part] for each in inputs), targets[part])
        for part in (slice(0, 5), slice(5, 7))
    ]
    names = {"inputs": ("features/a", "features/b")}
    manifest = DataManifest.load(
        convert(conversion_of(monkeypatch, tmp_path, blocks, DatasetSpec("m", "arrays"), **names)).folder
    )
    assert manifest.classes is None
    (first, second), labels = Split(manifest, "train").take(np.array([6, 0, 4]))
    assert np.array_equal(first, inputs[0][[6, 0, 4]])
    assert np.array_equal(second, inputs[1][[6, 0, 4]])
    assert np.array_equal(labels, targets[[6, 0, 4]])


@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.processes)])
def test_what_is_left_out_is_said_and_counted(tmp_path, monkeypatch, capfd, processes):
    pixels = np.zeros((2, 1, 8, 8), np.uint8)
    blocks = [
        SampleBlock((pixels,), np.array([0, 1]), skipped) for skipped in ((), ("record 7: is damaged",))
    ]
    manifest = convert(conversion_of(monkeypatch, tmp_path, blocks), processes)
    assert [shard.skipped for shard in manifest.splits["train"].shards] == [0, 1]
    assert capfd.readouterr().err == "train-00001-of-00002.npz: skipped record 7: is damaged\n"


@pytest.mark.long
def test_imagenet_in_both_formats_is_what_the_reader_gives(shared_data, tmp_path):
    for format in ("hdf5", "npz"):
        job = conversion_for(
            find_dataset("imagenet"), shared_data / "imagenet_tfrecord", tmp_path / format, format, 1
        )
        manifest = convert(job, 2)
        assert {name: part.samples for name, part in manifest.splits.items()} == {"train": 64, "test": 16}
        manifest.verify()
        start = {"train": 0, "test": 0}
        for unit in job.contents.units:
            block, first = unit.read(), start[unit.split]
            (images,), labels = Split(manifest, unit.split).take(np.arange(first, first + 16))
            assert np.array_equal(images, block.inputs[0])
            assert np.array_equal(labels, block.labels[:, 0] - 1)
            start[unit.split] += 16


def test_shards_of_different_kinds_are_refused(tmp_path, monkeypatch):
    blocks = [SampleBlock((np.zeros((2, size)),), np.zeros(2)) for size in (3, 4)]
    with pytest.raises(
        UserError, match=r"train-00001-of-00002.npz: the samples are features \(4,\).*train-00000.* \(3,\)"
    ):
        convert(conversion_of(monkeypatch, tmp_path, blocks, DatasetSpec("mine", "arrays")))


def test_mean_and_deviation_are_those_of_the_training_samples(digits):
    pixels = np.concatenate([np.asarray(Split(digits, "train").take(np.arange(1442))[0][0], np.float64)])
    (column,) = digits.inputs
    assert column.mean == pytest.approx([pixels.mean()], rel=1e-12)
    assert column.std == pytest.approx([pixels.std()], rel=1e-12)


def test_interrupted_conversion_goes_on_shard_by_shard(digits_raw, tmp_path, monkeypatch):
    whole = stored(DIGITS, digits_raw, tmp_path / "whole", "npz", 100)
    written = []

    def die_at_third(path, *rest):
        if len(written) == 2:
            raise KeyboardInterrupt
        written.append(path)
        write_shard(path, *rest)

    monkeypatch.setattr(conversion, "write_shard", die_at_third)
    with pytest.raises(KeyboardInterrupt):
        stored(DIGITS, digits_raw, tmp_path / "store", "npz", 100)
    made = listing(tmp_path / "store")
    assert sorted(made) == ["train-00000-of-00015.npz", "train-00001-of-00015.npz"]
    stamps = {name: (tmp_path / "store" / name).stat().st_mtime_ns for name in made}
    monkeypatch.setattr(conversion, "write_shard", write_shard)
    assert stored(DIGITS, digits_raw, tmp_path / "store", "npz", 100).splits == whole.splits
    assert {name: (tmp_path / "store" / name).stat().st_mtime_ns for name in made} == stamps


def test_files_that_changed_are_converted_again(digits_raw, tmp_path):
    raw = tmp_path / "raw"
    shutil.copytree(digits_raw, raw)
    stored(DIGITS, raw, tmp_path / "store", "npz", 400)
    assert not list(conversion_for(DIGITS, raw, tmp_path / "store", "npz", 400).missing_units())
    fetch(DIGITS, raw)  # changes no file
    assert not list(conversion_for(DIGITS, raw, tmp_path / "store", "npz", 400).missing_units())
    os.utime(raw / "digits.csv.gz", ns=(1, 1))
    assert len(list(conversion_for(DIGITS, raw, tmp_path / "store", "npz", 400).missing_units())) == 5


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

    monkeypatch.setattr(conversion, "write_shard", changing)
    manifest = stored(MNIST, raw, tmp_path / "store", "npz", 5)
    assert {name: part.samples for name, part in manifest.splits.items()} == {"train": 25, "test": 25}
    assert Split(manifest, "train").labels.tolist() == [0] * 25  # the tenth writing
    assert len(written) == 20


def test_a_file_that_never_rests_is_refused(tmp_path, monkeypatch):
    raw, written = mnist_raw(tmp_path, [0] * 25), []

    def changing(path, *rest):
        write_shard(path, *rest)
        written.append(path)
        os.utime(raw / "train-labels-idx1-ubyte", ns=(0, len(written)))

    monkeypatch.setattr(conversion, "write_shard", changing)
    with pytest.raises(UserError, match=r"train-labels-idx1-ubyte: the file changes while it is converted"):
        stored(MNIST, raw, tmp_path / "store", "npz", 5)
    assert not (tmp_path / "store/manifest.json").exists()


@pytest.mark.parametrize("part", ["images", "labels"])
def test_a_change_of_any_file_of_a_shard_outdates_it(tmp_path, part):
    raw = mnist_raw(tmp_path, [0] * 25)
    stored(MNIST, raw, tmp_path / "store", "npz", 5)
    (path,) = raw.glob(f"train-{part}*")
    os.utime(path, ns=(1, 1))
    missing = list(conversion_for(MNIST, raw, tmp_path / "store", "npz", 5).missing_units())
    assert [unit.split for unit in missing] == ["train"] * 5


@pytest.mark.processes
def test_two_conversions_at_once_make_one_whole_store(digits_raw, tmp_path):
    command = [sys.executable, "scripts/convert.py", "--dataset", "digits", "--raw", digits_raw]
    command += ["--target", tmp_path / "store", "--shard-size", "20"]
    root = Path(__file__).parents[3]
    started = [
        subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    for process in started:
        output, errors = process.communicate()
        assert process.returncode == 0, errors
        assert "1442 train, 355 test samples" in output
    manifest = DataManifest.load(tmp_path / "store")
    manifest.verify()
    assert len(manifest.splits["train"].shards) == 73


def test_shards_made_by_independent_jobs_make_the_same_store(digits_raw, tmp_path):
    """The workflow's rules convert_shard and convert make the same store if shards are converted in reverse order."""
    whole = stored(DIGITS, digits_raw, tmp_path / "whole", "hdf5", 400)
    job = conversion_for(DIGITS, digits_raw, tmp_path / "parts", "hdf5", 400)
    for unit in reversed(job.contents.units):
        job.convert_unit(job.layout, unit)
    assert not (tmp_path / "parts" / "manifest.json").exists()
    assert replace(convert(job), folder=whole.folder) == whole


@pytest.mark.long
def test_several_processes_make_the_same_store(digits_raw, tmp_path):
    whole = stored(DIGITS, digits_raw, tmp_path / "whole", "hdf5", 100)
    assert (
        replace(convert(replace_target(whole, digits_raw, tmp_path), processes=3), folder=whole.folder)
        == whole
    )


def replace_target(whole: DataManifest, raw: Path, folder: Path) -> Conversion:
    return conversion_for(DIGITS, raw, folder / "parts", whole.format, whole.settings["shard_size"])


def test_images_of_another_size_are_refused(tmp_path):
    raw = mnist_raw(tmp_path, [0, 1, 2])
    with pytest.raises(UserError, match=r"shape \(1, 28, 28\), but samples of mnist have \(1, 32, 32\)"):
        stored(replace(MNIST, shape=(1, 32, 32)), raw, tmp_path / "store", "npz", 5)
    assert listing(tmp_path / "store") == {}


def test_empty_set_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"no training samples of .* found"):
        stored(MNIST, mnist_raw(tmp_path, []), tmp_path / "store", "npz", 5)


def test_shard_size_must_be_positive(digits_raw, tmp_path):
    with pytest.raises(UserError, match=r"data\.shard_size: must be at least 1, not 0"):
        stored(DIGITS, digits_raw, tmp_path, "npz", 0)


def test_failure_leaves_no_store_that_mixes_two_conversions(digits_raw, tmp_path, monkeypatch):
    stored(DIGITS, digits_raw, tmp_path, "npz", 400)
    monkeypatch.setattr(conversion, "write_shard", full_disk)
    with pytest.raises(UserError, match=r"cannot write .*train-00000-of-00015.npz.*No space left"):
        stored(DIGITS, digits_raw, tmp_path, "npz", 100)
    assert not (tmp_path / "manifest.json").exists()
    assert not list(tmp_path.rglob("*.part"))


def full_disk(*_):
    raise OSError(28, "No space left on device")


@pytest.mark.processes
@pytest.mark.parametrize("format", ["hdf5", "npz"])
def test_full_disk_is_a_sentence(digits_raw, tmp_path, format):
    """A full disk, simulated by a limit on the file size, gives an error message without a traceback."""

    def limited():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))

    command = [sys.executable, "scripts/convert.py", "--dataset", "digits", "--raw", digits_raw]
    command += ["--target", tmp_path / "store", "--format", format]
    root = Path(__file__).parents[3]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, preexec_fn=limited)
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith(f"nnlo: error: cannot write {tmp_path / 'store' / 'train-00000-of-00001'}")
    assert "Traceback" not in done.stderr
    assert listing(tmp_path / "store") == {}
