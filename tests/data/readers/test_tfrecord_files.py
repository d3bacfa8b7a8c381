"""TFRecords as others write them: names and keys of TensorFlow Datasets, patterns, compressed files."""

import gzip
import io
import struct

import google_crc32c
import numpy as np
import pytest
from helpers.conversions import own_conversion
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from nnlo_lib.config import Experiment
from nnlo_lib.core.errors import UserError
from nnlo_lib.data.catalog import user_dataset
from nnlo_lib.data.fetch.fetch import fetch
from nnlo_lib.data.readers import read
from nnlo_lib.data.readers.tfrecord_files import SPLITS, find_files
from nnlo_lib.data.readers.tfrecord_stream import read_records
from nnlo_lib.data.store.convert import convert
from nnlo_lib.workflow.plan import Plan

TFDS = {"name": "tfrecord", "image_key": "image", "label_key": "label", "first_class": 0, "size": 8}


def crc(data):
    value = google_crc32c.value(data)
    return struct.pack("<I", ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def record(data):
    length = struct.pack("<Q", len(data))
    return length + crc(length) + data + crc(data)


def field(number, content):
    size = len(content)
    prefix = bytes([size]) if size < 128 else bytes([size & 127 | 128, size >> 7])
    return bytes([number << 3 | 2]) + prefix + content


def png(value):
    file = io.BytesIO()
    Image.fromarray(np.full((8, 8), value, np.uint8)).save(file, "PNG")
    return file.getvalue()


def sample(label, image_key="image", label_key="label"):
    image = field(1, image_key.encode()) + field(2, field(1, field(1, png(label))))
    number = field(1, label_key.encode()) + field(2, field(3, field(1, bytes([label]))))
    return record(field(1, field(1, image) + field(1, number)))


def write_tfds(folder, counts, name="digits", pack=bytes):
    """Write files as TensorFlow Datasets names them; the labels are 0, 1, 2, ... over all files of a split."""
    folder.mkdir(exist_ok=True)
    for split, (files, samples) in counts.items():
        for index in range(files):
            content = b"".join(sample(index * samples + number) for number in range(samples))
            (folder / f"{name}-{split}.tfrecord-{index:05d}-of-{files:05d}").write_bytes(pack(content))
    (folder / "label.labels.txt").write_text("".join(f"class {number}\n" for number in range(6)))


def labels_of(contents):
    found = {}
    for unit in contents.units:
        found.setdefault(unit.split, []).extend(unit.read().labels.ravel().tolist())
    return found


def options(**more):
    return {key: value for key, value in (TFDS | more).items() if key != "name"}


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_files_of_tensorflow_datasets(tmp_path, pack):
    write_tfds(tmp_path, {"train": (2, 3), "test": (1, 2)}, pack=pack)
    contents = read("tfrecord", tmp_path, 0, options(colour="grey", resize="none"))
    assert [unit.name for unit in contents.units] == [
        "train/train-00000-of-00002",
        "train/train-00001-of-00002",
        "test/test-00000-of-00001",
    ]
    assert labels_of(contents) == {"train": [0, 1, 2, 3, 4, 5], "test": [0, 1]}
    assert contents.class_names == tuple(f"class {number}" for number in range(6))
    images = contents.units[1].read().inputs[0]
    assert images.shape == (3, 1, 8, 8)
    assert images[:, 0, 0, 0].tolist() == [3, 4, 5]


def test_a_store_of_tensorflow_datasets_counts_classes_from_zero(tmp_path):
    write_tfds(tmp_path / "in", {"train": (2, 3), "test": (1, 2)})
    fetch(user_dataset("digits", "tfrecord"), tmp_path / "raw", str(tmp_path / "in"))
    conversion = own_conversion(tmp_path / "raw", tmp_path / "npz", "npz", 1, TFDS)
    manifest = convert(conversion)
    assert (manifest.classes, manifest.first_class, manifest.splits["train"].samples) == (6, 0, 6)


@pytest.mark.parametrize("on_corrupt", ["error", "skip"])
def test_labels_below_the_first_class_are_never_skipped(tmp_path, on_corrupt):
    write_tfds(tmp_path, {"train": (1, 3)})
    with pytest.raises(
        UserError, match=r"a label is 0, but data\.reader\.first_class is 1; set it to the lowest"
    ):
        read("tfrecord", tmp_path, 0, options(first_class=1, on_corrupt=on_corrupt)).units[0].read()


@pytest.mark.parametrize(
    ("splits", "expected"),
    [
        (["train", "validation"], {"train", "test"}),
        (["train", "test"], {"train", "test"}),
        (["train", "validation", "test"], {"train", "validation", "test"}),
    ],
)
def test_validation_is_the_test_only_if_there_is_no_test(tmp_path, splits, expected):
    """Before, the samples of both were mixed in the test split."""
    write_tfds(tmp_path, dict.fromkeys(splits, (1, 2)))
    assert labels_of(read("tfrecord", tmp_path, 0, options())) == {split: [0, 1] for split in expected}


NAMES = [
    "train-{}-of-{}",
    "digits-train.tfrecord-{}-of-{}",
    "my_set-train-{}-of-{}.tfrecord",
    "train-{}-of-{}.tfrec.gz",
]


@pytest.mark.parametrize("name", NAMES)
def test_known_forms_of_names(tmp_path, name):
    for index in range(2):
        (tmp_path / name.format(f"{index:05d}", "00002")).touch()
    for other in ("README.md", "features.json", "train-00000-of-00002.index", "training-00000-of-00001"):
        (tmp_path / other).touch()
    files = find_files(tmp_path, dict.fromkeys(SPLITS))
    assert {shard: path.name for shard, path in files.items()} == {
        f"train/train-{index:05d}-of-00002": name.format(f"{index:05d}", "00002") for index in range(2)
    }


def test_files_of_two_data_sets_are_refused(tmp_path):
    for name in ("ants", "bees"):
        write_tfds(tmp_path, {"train": (1, 2)}, name)
    with pytest.raises(UserError, match=r"several sets \(ants-train\.tfrecord-\*-of-00001 and bees-train"):
        read("tfrecord", tmp_path, 0, options())


def test_patterns_of_the_user(tmp_path):
    for name, label in (("b.tfrec", 2), ("a.tfrec", 1), ("held_out.tfrec", 3)):
        (tmp_path / name).write_bytes(sample(label))
    contents = read("tfrecord", tmp_path, 0, options(train="[ab].tfrec", validation="held*"))
    assert labels_of(contents) == {"train": [1, 2], "validation": [3]}
    assert contents.units[1].name == "train/train-00001-of-00002"
    with pytest.raises(UserError, match=r"data\.reader\.test: no file in .* matches none\*"):
        read("tfrecord", tmp_path, 0, options(train="*.tfrec", test="none*"))
    with pytest.raises(UserError, match=r"data\.reader\.train: missing"):
        read("tfrecord", tmp_path, 0, options(test="*.tfrec"))


def test_jobs_of_the_workflow_convert_the_files_of_the_patterns(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.tfrec").write_bytes(sample(1))
    data = {"dataset": "mine", "source": str(tmp_path), "reader": TFDS | {"train": "*.tfrec"}}
    plan = Plan.of(Experiment.model_validate({"data": data}))
    assert list(plan.shards.values()) == [["train/train-00000-of-00001"]]


def test_wrong_keys_are_answered_with_the_keys_of_the_record(tmp_path):
    write_tfds(tmp_path, {"train": (1, 2)})
    with pytest.raises(
        UserError, match=r"no feature image/class/label; set data\.reader\.image_key .*: image, label"
    ):
        read("tfrecord", tmp_path, 0, {}).units[0].read()


def test_a_record_that_starts_like_gzip_is_not_taken_for_gzip(tmp_path):
    """The length 0x88b1f, in little endian, has the first three bytes of gzip."""
    (tmp_path / "x").write_bytes(record(bytes(0x88B1F)))
    assert [len(item) for _, _, item in read_records(tmp_path / "x")] == [0x88B1F]


PAYLOADS = [bytes(30), b"", b"x" * 300]
PACKED = gzip.compress(b"".join(map(record, PAYLOADS)), mtime=0)


@settings(max_examples=300, deadline=None)
@given(at=st.integers(0, len(PACKED) - 1), bit=st.integers(0, 7), cut=st.booleans())
def test_damage_of_a_compressed_file_is_noticed_or_harmless(tmp_path_factory, at, bit, cut):
    path = tmp_path_factory.mktemp("packed") / "x"
    damaged = bytearray(PACKED)
    damaged[at] ^= 1 << bit
    path.write_bytes(PACKED[:at] if cut else damaged)
    items = [item for _, _, item in read_records(path)]
    whole = [item for item in items if isinstance(item, bytes)]
    assert all(item in PAYLOADS for item in whole)
    # An empty file has no record; the reader refuses the file.
    assert items == PAYLOADS or len(items) > len(whole) or (cut and at == 0)


@pytest.mark.parametrize("prefix", ["$(touch ran)-", "`x`'\";&|-", "a,b=c -", "--target=x-", "é{x}-"])
def test_no_character_of_a_file_name_is_in_the_name_of_a_shard(tmp_path, prefix):
    """Names of shards are on the command lines of jobs, which Snakemake and the batch system pass through several shells."""
    for number in range(2):
        (tmp_path / f"{prefix}train-{number:05d}-of-00002").touch()
    found = find_files(tmp_path, dict.fromkeys(SPLITS))
    assert list(found) == ["train/train-00000-of-00002", "train/train-00001-of-00002"]
    assert all(path.is_file() for path in found.values())
    by_pattern = find_files(tmp_path, dict.fromkeys(SPLITS) | {"train": "*"})
    assert by_pattern == found
