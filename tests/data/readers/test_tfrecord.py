"""TFRecords: PyDTNN's ImageNet pixel by pixel, files of TensorFlow Datasets and of users, and damage."""

import bz2
import gzip
import hashlib
import io
import lzma
import struct
import tracemalloc
import zlib

import google_crc32c
import numpy as np
import pytest
from helpers.conversions import own_conversion
from PIL import Image

from nnlo_lib.config import Experiment
from nnlo_lib.core.errors import UserError
from nnlo_lib.data.catalog import DatasetSpec
from nnlo_lib.data.fetch.fetch import fetch
from nnlo_lib.data.readers.base import read
from nnlo_lib.data.readers.tfrecord import SPLITS, find_files
from nnlo_lib.data.readers.tfrecord_stream import read_records
from nnlo_lib.data.store.convert import convert
from nnlo_lib.workflow.plan import Plan

TFDS = {"image_key": "image", "label_key": "label", "first_class": 0, "size": 8}


def encoded(pixels, kind):
    Image.fromarray(pixels).save(file := io.BytesIO(), kind)
    return file.getvalue()


JPEG = encoded(np.full((40, 40, 3), 77, np.uint8), "JPEG")


def varint(value):
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def field(number, content):
    return varint(number << 3 | 2) + varint(len(content)) + content


def example(**features):
    """Return an encoded Example, built from protobuf's description of the wire format."""
    entries = b""
    for name, value in features.items():
        match value:
            case bytes():
                kind = field(1, field(1, value))
            case float():
                kind = field(2, field(1, struct.pack("<f", value)))
            case int():
                kind = field(3, field(1, varint(value)))
        entries += field(1, field(1, name.replace("_", "/").encode()) + field(2, kind))
    return field(1, entries)


def crc(data):
    value = google_crc32c.value(data)
    return struct.pack("<I", ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def record(data):
    length = struct.pack("<Q", len(data))
    return length + crc(length) + data + crc(data)


def sample(label=5, image=JPEG):
    return record(example(image_encoded=image, image_class_label=label))


def tfds_sample(label):
    return record(example(image=encoded(np.full((8, 8), label, np.uint8), "PNG"), label=label))


def write_tfds(folder, counts, name="digits", pack=bytes):
    """Write files as TensorFlow Datasets names them; the labels are 0, 1, 2, ... over all files of a split."""
    folder.mkdir(exist_ok=True)
    for split, (files, samples) in counts.items():
        for index in range(files):
            content = b"".join(tfds_sample(index * samples + number) for number in range(samples))
            (folder / f"{name}-{split}.tfrecord-{index:05d}-of-{files:05d}").write_bytes(pack(content))
    (folder / "label.labels.txt").write_text("".join(f"class {number}\n" for number in range(6)))


def one_file(tmp_path, content, **options):
    (tmp_path / "train-00000-of-00001").write_bytes(content)
    return read("tfrecord", tmp_path, 0, {"size": 8} | options).units[0].read()


def shards(folder, **patterns):
    """Return the files by name of the shard."""
    return find_files(folder, dict.fromkeys(SPLITS) | patterns)


def labels_of(folder, **options):
    found = {}
    for unit in read("tfrecord", folder, 0, TFDS | options).units:
        found.setdefault(unit.split, []).extend(unit.read().labels.ravel().tolist())
    return found


# SHA-256 of the pixels that TensorFlow 2.21 gives for PyDTNN's operations: decode_jpeg(channels=3,
# dct_method="INTEGER_ACCURATE"), central_crop(0.875), compat.v1 resize_bilinear([227, 227]), cast to uint8, NCHW;
# and the first labels, read by a parser of the wire format of protobuf.
TENSORFLOW = {
    "train/train-00000-of-00004": ("c4a869a389ec031793c8ca3e922c1a236478a479442f6ab2dafd316190b0090c", 879, 383),
    "train/train-00001-of-00004": ("9274e60eb841b646389dec42eda7a9c0d29c1b51300e02deeedb8daeeef88815", 858, 851),
    "train/train-00002-of-00004": ("0ee68bbb5c5796557fd932021567c226e7c0f049d664db0c9348e1a3c27fcb95", 350, 928),
    "train/train-00003-of-00004": ("f1f92327ccd8f876482dc7ccc00de079843fc56f71f3086bc2f3a3938b4cf556", 314, 195),
    "test/validation-00000-of-00001": ("1d8103e068eaaf6e391df8e15cbbf991cfb4cdd71b31a9cc79b04132b7a038e6", 489, 339),
}  # fmt: skip


def test_layout_is_pydtnns(shared_data):
    contents = read("tfrecord", shared_data / "imagenet_tfrecord", 0, {})
    assert [unit.split for unit in contents.units] == ["train"] * 4 + ["test"]
    assert (contents.inputs, contents.labels, contents.first_class) == (("x",), "y", 1)
    found = {}
    for unit in contents.units:
        block = unit.read()
        assert (block.inputs[0].dtype, block.inputs[0].shape) == (np.uint8, (16, 3, 227, 227))
        assert (block.labels.dtype, block.labels.shape, block.skipped) == (np.int16, (16, 1), ())
        digest = hashlib.sha256(block.inputs[0].tobytes()).hexdigest()
        found[unit.name] = (digest, *block.labels[:2, 0].tolist())
    assert found == TENSORFLOW


GOOD = sample()
BAD = {
    "flipped data": GOOD[:50] + bytes([GOOD[50] ^ 1]) + GOOD[51:],
    "flipped checksum": GOOD[:-1] + bytes([GOOD[-1] ^ 1]),
    "no example": record(b"\xff" * 30),
    "no image": record(example(image_class_label=3)),
    "no label": record(example(image_encoded=JPEG)),
    "negative label": sample(2**64 - 1),
    "large label": sample(40_000),
    "label that is text": sample(b"5"),
    "label that is no integer": sample(5.0),
    "broken image": sample(image=JPEG[:300]),
    "no jpeg": sample(image=b"hello"),
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_a_corrupt_record_is_named_or_left_out_and_counted(tmp_path, bad):
    content = sample(1) + bad + sample(3)
    message = rf"train-00000-of-00001: record 1 at byte {len(sample(1))}: .*on_corrupt: skip"
    with pytest.raises(UserError, match=message):
        one_file(tmp_path, content)
    block = one_file(tmp_path, content, on_corrupt="skip")
    assert block.labels.ravel().tolist() == [1, 3]
    (skipped,) = block.skipped
    assert skipped.startswith("record 1: ")
    assert "rest of the file" not in skipped


HUGE = struct.pack("<Q", 2**60)
LOST = {
    "truncated header": GOOD[:5],
    "truncated data": GOOD[: len(GOOD) // 2],
    "truncated checksum": GOOD[:-2],
    "flipped length": bytes([GOOD[0] ^ 1]) + GOOD[1:] + sample(3),
    "huge length": HUGE + crc(HUGE) + GOOD[12:] + sample(3),
}


@pytest.mark.parametrize("lost", LOST.values(), ids=LOST)
def test_with_the_length_of_a_record_the_rest_of_the_file_is_lost(tmp_path, lost):
    content = sample(1) + lost
    tracemalloc.start()
    with pytest.raises(UserError, match="record 1 at byte"):
        one_file(tmp_path, content)
    assert tracemalloc.get_traced_memory()[1] < 5e6
    tracemalloc.stop()
    block = one_file(tmp_path, content, on_corrupt="skip")
    assert block.labels.ravel().tolist() == [1]
    (skipped,) = block.skipped
    assert skipped.startswith("record 1: ")
    assert skipped.endswith("the rest of the file cannot be read")


@pytest.mark.parametrize("content", [b"", BAD["no jpeg"], b"\x00" * 100, b"<html>"])
def test_a_file_without_any_sample_is_an_error_even_when_skipping(tmp_path, content):
    with pytest.raises(UserError, match="train-00000-of-00001: no usable record"):
        one_file(tmp_path, content, on_corrupt="skip")


@pytest.fixture(scope="module")
def one_path(tmp_path_factory):
    return tmp_path_factory.mktemp("records") / "train-00000-of-00001"


def items_of(path, content):
    path.write_bytes(content)
    return [item for _, _, item in read_records(path)]


def test_damage_of_a_compressed_file_is_noticed_or_harmless(one_path):
    payloads = [bytes(30), b"", b"x" * 300]
    packed = gzip.compress(b"".join(map(record, payloads)), mtime=0)
    for at in range(len(packed)):
        damaged = bytearray(packed)
        damaged[at] ^= 1 << at % 8
        for content in (damaged, packed[:at]):
            items = items_of(one_path, content)
            whole = [item for item in items if isinstance(item, bytes)]
            assert all(item in payloads for item in whole)
            # An empty file has no record; the reader refuses the file.
            assert items == payloads or len(items) > len(whole) or not content


def touch(folder, *names):
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / name).touch()


def test_the_files_of_imagenet_are_sorted_into_splits(tmp_path):
    counts = {"train": 1024, "validation": 128}
    names = [
        f"{split}-{index:05d}-of-{count:05d}" for split, count in counts.items() for index in range(count)
    ]
    touch(tmp_path, "README", *reversed(names))
    assert list(shards(tmp_path)) == [
        f"{'train' if name.startswith('train') else 'test'}/{name}" for name in names
    ]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["validation-00000-of-00001"], "no TFRecords found"),
        (["train-00000-of-00003"], "2 of 3 TFRecords are missing: train-00001-of-00003, train-00002-of-00003"),
        (
            ["train-00000-of-00001", "train-00001-of-00001"],
            "the number of train-00001-of-00001 is not below the number of files in its name",
        ),
        (["train-00000-of-00009"], r"8 of 9 .* missing: .*, \.\.\."),
        (["train-00000-of-00001", "validation-00001-of-00002"], "1 of 2 .* missing: validation-00000-of-00002"),
        (
            ["train-00000-of-00001", "train-00000-of-00002", "train-00001-of-00002"],
            r"train files of several sets \(train-\*-of-00001 and train-\*-of-00002\)",
        ),
        (
            ["ants-train.tfrecord-00000-of-00001", "bees-train.tfrecord-00000-of-00001"],
            r"several sets \(ants-train\.tfrecord-\*-of-00001 and bees-train",
        ),
        ([], "no TFRecords found"),
    ],
)  # fmt: skip
def test_missing_files_are_named(tmp_path, names, message):
    touch(tmp_path, *names)
    with pytest.raises(UserError, match=message):
        shards(tmp_path)


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_files_of_tensorflow_datasets(tmp_path, pack):
    write_tfds(tmp_path, {"train": (2, 3), "test": (1, 2)}, pack=pack)
    contents = read("tfrecord", tmp_path, 0, TFDS | {"colour": "grey", "resize": "none"})
    names = ["train/train-00000-of-00002", "train/train-00001-of-00002", "test/test-00000-of-00001"]
    assert [unit.name for unit in contents.units] == names
    assert labels_of(tmp_path) == {"train": [0, 1, 2, 3, 4, 5], "test": [0, 1]}
    assert contents.class_names == tuple(f"class {number}" for number in range(6))
    images = contents.units[1].read().inputs[0]
    assert images.shape == (3, 1, 8, 8)
    assert images[:, 0, 0, 0].tolist() == [3, 4, 5]


@pytest.mark.parametrize(
    ("labels", "first_class", "classes"), [((0, 1, 2), 0, 3), ((2, 1, 3), 1, 3), ((2, 1, 3), 0, None)]
)
def test_a_first_class_without_a_sample_is_refused(tmp_path, labels, first_class, classes):
    """A class 0 that no sample has would be learned, too."""
    (tmp_path / "in").mkdir()
    file = tmp_path / "in" / "birds-train.tfrecord-00000-of-00001"
    file.write_bytes(b"".join(map(tfds_sample, labels)))
    fetch(DatasetSpec(name="birds", reader="tfrecord"), tmp_path / "raw", str(tmp_path / "in"))
    reader = {"name": "tfrecord"} | TFDS | {"first_class": first_class}
    conversion = own_conversion(tmp_path / "raw", tmp_path / "npz", "npz", 1, reader)
    if classes:
        assert convert(conversion).classes == classes
        return
    message = r"1 is the lowest label, but classes start at 0; set data\.reader\.first_class: 1 if"
    with pytest.raises(UserError, match=message):
        convert(conversion)


def test_keys_and_first_class_that_do_not_fit_are_named_and_never_skipped(tmp_path):
    write_tfds(tmp_path, {"train": (1, 3)})
    with pytest.raises(UserError, match=r"a label is 0, but data\.reader\.first_class is 1; set it to the"):
        labels_of(tmp_path, first_class=1, on_corrupt="skip")
    message = r"no feature image/class/label; set data\.reader\.image_key .*: image,"
    with pytest.raises(UserError, match=message):
        read("tfrecord", tmp_path, 0, {}).units[0].read()


def test_validation_is_the_test_only_if_there_is_no_test(tmp_path):
    """Before, the samples of both were mixed in the test split."""
    write_tfds(tmp_path, dict.fromkeys(["train", "validation"], (1, 2)))
    assert labels_of(tmp_path) == {split: [0, 1] for split in ("train", "test")}
    write_tfds(tmp_path, {"test": (1, 2)})
    assert labels_of(tmp_path) == {split: [0, 1] for split in ("train", "validation", "test")}


@pytest.mark.parametrize(
    "name",
    [
        "train-{}-of-{}",
        "digits-train.tfrecord-{}-of-{}",
        "my_set-train-{}-of-{}.tfrecord",
        "train-{}-of-{}.tfrec.gz",
    ],
)
def test_known_forms_of_names(tmp_path, name):
    names = [name.format(f"{index:05d}", "00002") for index in range(2)]
    touch(tmp_path, *names, "README.md", "train-00000-of-00002.index", "training-00000-of-00001")
    found = {f"train/train-{index:05d}-of-00002": names[index] for index in range(2)}
    assert {shard: path.name for shard, path in shards(tmp_path).items()} == found


def test_no_character_of_a_file_name_is_in_the_name_of_a_shard(tmp_path):
    """Names of shards are on the command lines of jobs, which Snakemake and the batch system pass through several shells."""
    for number, prefix in enumerate(["$(touch ran)-", "`x`'\";&|-", "a,b=c -", "--target=x-", "é{x}-"]):
        folder = tmp_path / str(number)
        touch(folder, *(f"{prefix}train-{number:05d}-of-00002" for number in range(2)))
        found = shards(folder)
        assert list(found) == ["train/train-00000-of-00002", "train/train-00001-of-00002"]
        assert all(path.is_file() for path in found.values())
        assert shards(folder, train="*") == found


def test_patterns_of_the_user(tmp_path, monkeypatch):
    for name, label in (("b.tfrec", 2), ("a.tfrec", 1), ("held_out.tfrec", 3)):
        (tmp_path / name).write_bytes(tfds_sample(label))
    assert labels_of(tmp_path, train="[ab].tfrec", validation="held*") == {"train": [1, 2], "validation": [3]}
    names = list(shards(tmp_path, train="[ab].tfrec"))
    assert names == ["train/train-00000-of-00002", "train/train-00001-of-00002"]
    with pytest.raises(UserError, match=r"data\.reader\.test: no file in .* matches none\*"):
        labels_of(tmp_path, train="*.tfrec", test="none*")
    with pytest.raises(UserError, match=r"data\.reader\.train: missing"):
        labels_of(tmp_path, test="*.tfrec")
    monkeypatch.chdir(tmp_path)
    reader = {"name": "tfrecord", "train": "[ab].tfrec"} | TFDS
    data = {"dataset": "mine", "source": str(tmp_path), "reader": reader}
    plan = Plan.of(Experiment.model_validate({"data": data}))
    assert list(plan.shards.values()) == [names], "the jobs of the workflow convert these"


@pytest.mark.parametrize("empty", [b"", gzip.compress(b"", mtime=0)])
def test_files_without_a_record_are_left_out_with_a_note(tmp_path, capsys, empty):
    """Beam and TensorFlow's writers of many shards leave empty ones."""
    write_tfds(tmp_path, {"train": (2, 3), "test": (1, 2)})
    for index in range(2):
        (tmp_path / f"digits-train.tfrecord-{index:05d}-of-00002").rename(
            tmp_path / f"digits-train.tfrecord-{index:05d}-of-00003"
        )
    (tmp_path / "digits-train.tfrecord-00002-of-00003").write_bytes(empty)
    assert labels_of(tmp_path) == {"train": [0, 1, 2, 3, 4, 5], "test": [0, 1]}
    assert "files without a record are left out" in capsys.readouterr().err
    (note,) = read("tfrecord", tmp_path, 1, TFDS).notes
    assert "00002-of-00003" in note
    (tmp_path / "digits-test.tfrecord-00000-of-00001").write_bytes(empty)
    with pytest.raises(UserError, match=r"digits-test.*no usable record \(the file is empty\)"):
        labels_of(tmp_path)


FORMATS = {
    "ZLIB": (zlib.compress(sample()), "compressed by ZLIB"),
    "bzip2": (bz2.compress(sample()), "compressed by bzip2"),
    "xz": (lzma.compress(sample()), "compressed by xz"),
    "Zstandard": (b"\x28\xb5\x2f\xfd" + bytes(60), "compressed by Zstandard"),
    "Parquet": (b"PAR1" + bytes(60), "a Parquet file"),
}


@pytest.mark.parametrize(("content", "text"), FORMATS.values(), ids=FORMATS)
def test_files_of_another_format_are_named(tmp_path, content, text):
    with pytest.raises(UserError, match=f"train-00000-of-00001: {text}; write TFRecords"):
        one_file(tmp_path, content, on_corrupt="skip")


@pytest.mark.parametrize("length", [0x9C78, 0x88B1F])
def test_a_record_whose_length_looks_like_another_format_is_a_record(one_path, length):
    """The length of a record is the first bytes of the file, here of ZLIB's and of gzip's."""
    assert items_of(one_path, record(bytes(length))) == [bytes(length)]


def test_raw_pixels_are_not_called_damaged(tmp_path):
    message = r"record 0 at byte 0: .*written so, perhaps as raw pixels: .*image_key"
    with pytest.raises(UserError, match=message) as error:
        one_file(tmp_path, sample(image=bytes(range(192))))
    assert "download" not in str(error.value)
