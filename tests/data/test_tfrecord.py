import io
import struct
import tracemalloc

import google_crc32c
import numpy as np
import pytest
from PIL import Image

from nnlo_lib.data.readers import read
from nnlo_lib.data.readers.example import parse
from nnlo_lib.data.readers.tfrecord import records, shards
from nnlo_lib.errors import UserError


def jpeg():
    file = io.BytesIO()
    Image.fromarray(np.full((40, 40, 3), 77, np.uint8)).save(file, "JPEG")
    return file.getvalue()


JPEG = jpeg()


def varint(value):
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def field(number, content):
    return varint(number << 3 | 2) + varint(len(content)) + content


def example(**features):
    """Write an Example by hand, after protobuf's description of its wire format."""
    entries = b""
    for name, value in features.items():
        kind = field(1, field(1, value)) if isinstance(value, bytes) else field(3, field(1, varint(value)))
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


def one_file(tmp_path, content, **options):
    (tmp_path / "train-00000-of-00001").write_bytes(content)
    return read("tfrecord", tmp_path, 0, {"size": 8} | options).units[0].read()


def walk(data):
    """The records of a file, by struct alone."""
    at = 0
    while at < len(data):
        (length,) = struct.unpack("<Q", data[at : at + 8])
        yield data[at + 12 : at + 12 + length]
        at += 16 + length
    assert at == len(data)


def bilinear(pixels, size):
    """TensorFlow 1's formula for whole images, the four neighbours at once."""
    h, w = pixels.shape[:2]
    top, left = int((h - h * 0.875) / 2), int((w - w * 0.875) / 2)
    p = pixels[top : h - top, left : w - left].astype(np.float32)
    y, x = (np.arange(size, dtype=np.float32) * np.float32(n / size) for n in p.shape[:2])
    y0, x0 = y.astype(int), x.astype(int)
    y1, x1 = np.minimum(y0 + 1, p.shape[0] - 1), np.minimum(x0 + 1, p.shape[1] - 1)
    fy, fx = (y - y0.astype(np.float32))[:, None, None], (x - x0.astype(np.float32))[None, :, None]
    upper = p[np.ix_(y0, x0)] + (p[np.ix_(y0, x1)] - p[np.ix_(y0, x0)]) * fx
    lower = p[np.ix_(y1, x0)] + (p[np.ix_(y1, x1)] - p[np.ix_(y1, x0)]) * fx
    return (upper + (lower - upper) * fy).astype(np.uint8)


def test_every_real_image_pixel_for_pixel_against_pillow(shared_data):
    folder, images = shared_data / "imagenet_tfrecord", 0
    for unit in read("tfrecord", folder, 0, {}).units:
        block = unit.read()
        data = (folder / unit.name.rpartition("/")[2]).read_bytes()
        for pixels, label, item in zip(block.inputs[0], block.labels, walk(data), strict=True):
            start, end = item.index(b"\xff\xd8\xff"), item.rindex(b"\xff\xd9") + 2
            decoded = np.asarray(Image.open(io.BytesIO(item[start:end])).convert("RGB"))
            assert np.array_equal(pixels.transpose(1, 2, 0), bilinear(decoded, 227))
            key = item.index(b"image/class/label") + len("image/class/label")
            number = item[key:].partition(b"\n")[2]  # the Int64List behind the key ends in its varint
            assert 1 <= label[0] <= 1000
            assert varint(int(label[0])) in number[:8]
            images += 1
        assert block.skipped == ()
    assert images == 64 + 16


def test_layout_is_pydtnns(shared_data):
    contents = read("tfrecord", shared_data / "imagenet_tfrecord", 0, {})
    assert [unit.name for unit in contents.units] == [
        *(f"train/train-{index:05d}-of-00004" for index in range(4)),
        "test/validation-00000-of-00001",
    ]
    assert [unit.split for unit in contents.units] == ["train"] * 4 + ["test"]
    assert (contents.inputs, contents.labels, contents.first_class) == (("x",), "y", 1)
    block = contents.units[0].read()
    assert (block.inputs[0].dtype, block.inputs[0].shape[1:]) == (np.uint8, (3, 227, 227))
    assert (block.labels.dtype, block.labels.shape[1:]) == (np.int16, (1,))


def test_features_of_every_kind():
    floats = field(2, field(1, struct.pack("<2f", 0.5, -2.0)))
    data = field(1, field(1, field(1, b"box") + field(2, floats)) + field(1, field(1, b"none")))
    assert parse(data) == {"box": [0.5, -2.0], "none": []}
    assert parse(example(a=b"x", b=300)) == {"a": [b"x"], "b": [300]}


def bad(kind):
    good = sample()
    return {
        "flipped data": good[:50] + bytes([good[50] ^ 1]) + good[51:],
        "flipped checksum": good[:-1] + bytes([good[-1] ^ 1]),
        "no example": record(b"\xff" * 30),
        "no image": record(example(image_class_label=3)),
        "no label": record(example(image_encoded=JPEG)),
        "negative label": record(example(image_encoded=JPEG, image_class_label=2**64 - 1)),
        "large label": sample(40_000),
        "label that is text": record(example(image_encoded=JPEG, image_class_label=b"5")),
        "broken image": sample(image=JPEG[:300]),
        "no jpeg": sample(image=b"hello"),
    }[kind]


KINDS = ["flipped data", "flipped checksum", "no example", "no image", "no label", "negative label", "large label", "label that is text", "broken image", "no jpeg"]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_corrupt_record_is_named_or_left_out_and_counted(tmp_path, kind):
    content = sample(1) + bad(kind) + sample(3)
    with pytest.raises(
        UserError, match=rf"train-00000-of-00001: record 1 at byte {len(sample(1))} .*on_corrupt: skip"
    ):
        one_file(tmp_path, content)
    block = one_file(tmp_path, content, on_corrupt="skip")
    assert block.labels.ravel().tolist() == [1, 3]
    (skipped,) = block.skipped
    assert skipped.startswith("record 1: ")


LOST = {
    "truncated header": lambda good: good[:5],
    "truncated data": lambda good: good[: len(good) // 2],
    "truncated checksum": lambda good: good[:-2],
    "flipped length": lambda good: bytes([good[0] ^ 1]) + good[1:],
    "huge length": lambda good: struct.pack("<Q", 2**60) + crc(struct.pack("<Q", 2**60)) + good[12:],
}


@pytest.mark.parametrize("kind", LOST)
def test_where_the_length_is_lost_so_is_the_rest_of_the_file(tmp_path, kind):
    content = sample(1) + LOST[kind](sample(2))
    content += sample(3) if kind in ("flipped length", "huge length") else b""
    tracemalloc.start()
    with pytest.raises(UserError, match="record 1 at byte"):
        one_file(tmp_path, content)
    assert tracemalloc.get_traced_memory()[1] < 5e6
    tracemalloc.stop()
    block = one_file(tmp_path, content, on_corrupt="skip")
    assert block.labels.ravel().tolist() == [1]
    assert len(block.skipped) == 1


@pytest.mark.parametrize("content", [b"", bad("no jpeg"), b"\x00" * 100, b"<html>"])
def test_a_file_without_any_sample_is_an_error_even_when_skipping(tmp_path, content):
    with pytest.raises(UserError, match="train-00000-of-00001 holds no record that can be used"):
        one_file(tmp_path, content, on_corrupt="skip")


def test_no_flipped_bit_passes_unnoticed(tmp_path):
    good = sample(7)
    path = tmp_path / "x"
    for bit in range(0, len(good) * 8, 7):
        damaged = bytearray(good)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        items = [item for _, _, item in records(path)]
        assert all(isinstance(item, ValueError) for item in items), bit


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([], "holds no TFRecords"),
        (["validation-00000-of-00001"], "holds no TFRecords"),
        (["train-00000-of-00003"], "lacks 2 of 3 TFRecords: train-00001-of-00003, train-00002-of-00003"),
        (["train-00000-of-00009"], r"lacks 8 of 9 .*, \.\.\."),
        (["train-00000-of-00001", "train-00000-of-00002"], "lacks 1 of 2 TFRecords: train-00001-of-00002"),
    ],
)
def test_missing_files_are_named(tmp_path, names, message):
    for name in names:
        (tmp_path / name).touch()
    with pytest.raises(UserError, match=message):
        shards(tmp_path)
