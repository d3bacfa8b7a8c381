import hashlib
import io
import pickle
import struct
import tracemalloc
from time import process_time

import google_crc32c
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.readers import read
from nnlo_lib.data.readers.example import parse
from nnlo_lib.data.readers.tfrecord_files import SPLITS, find_files
from nnlo_lib.data.readers.tfrecord_stream import read_records


def list_shards(folder, **patterns):
    """Return the names of the shards."""
    return list(find_files(folder, dict.fromkeys(SPLITS) | patterns))


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


def one_file(tmp_path, content, **options):
    (tmp_path / "train-00000-of-00001").write_bytes(content)
    return read("tfrecord", tmp_path, 0, {"size": 8} | options).units[0].read()


def wire(data):
    """Yield (field number, value) of a protobuf message that has only varints and length-delimited fields."""
    at = 0

    def number():
        nonlocal at
        value = shift = 0
        while data[at] & 128:
            value, shift, at = value | (data[at] & 127) << shift, shift + 7, at + 1
        value, at = value | data[at] << shift, at + 1
        return value

    while at < len(data):
        key = number()
        value = number()
        if key & 7 == 2:
            value, at = data[at : at + value], at + value
        yield key >> 3, value


def feature(data, wanted):
    """Return the list of a feature of an Example: packed values, or the one bytes value."""
    ((_, entries),) = wire(data)
    (value,) = (dict(wire(entry))[2] for _, entry in wire(entries) if dict(wire(entry))[1] == wanted)
    ((_, values),) = wire(value)
    ((_, content),) = wire(values)
    return content


def walk(data):
    """Yield the records of a TFRecord file, decoded with struct only."""
    at = 0
    while at < len(data):
        (length,) = struct.unpack("<Q", data[at : at + 8])
        yield data[at + 12 : at + 12 + length]
        at += 16 + length
    assert at == len(data)


def bilinear(pixels, size):
    """Resize a cropped image by TensorFlow 1's bilinear formula, vectorized over pixels."""
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


@pytest.mark.long
def test_every_real_image_pixel_for_pixel_against_pillow(shared_data):
    folder, images = shared_data / "imagenet_tfrecord", 0
    for unit in read("tfrecord", folder, 0, {}).units:
        block = unit.read()
        data = (folder / unit.name.rpartition("/")[2]).read_bytes()
        for pixels, label, item in zip(block.inputs[0], block.labels, walk(data), strict=True):
            decoded = np.asarray(Image.open(io.BytesIO(feature(item, b"image/encoded"))).convert("RGB"))
            assert np.array_equal(pixels.transpose(1, 2, 0), bilinear(decoded, 227))
            packed = feature(item, b"image/class/label")
            assert varint(int(label[0])) == (packed if isinstance(packed, bytes) else varint(packed))
            assert 1 <= label[0] <= 1000
            images += 1
        assert block.skipped == ()
    assert images == 64 + 16


TENSORFLOW = {
    "train-00000-of-00004": "c4a869a389ec031793c8ca3e922c1a236478a479442f6ab2dafd316190b0090c",
    "train-00001-of-00004": "9274e60eb841b646389dec42eda7a9c0d29c1b51300e02deeedb8daeeef88815",
    "train-00002-of-00004": "0ee68bbb5c5796557fd932021567c226e7c0f049d664db0c9348e1a3c27fcb95",
    "train-00003-of-00004": "f1f92327ccd8f876482dc7ccc00de079843fc56f71f3086bc2f3a3938b4cf556",
    "validation-00000-of-00001": "1d8103e068eaaf6e391df8e15cbbf991cfb4cdd71b31a9cc79b04132b7a038e6",
}


def test_every_real_image_against_tensorflow(shared_data):
    """The pixels have the recorded SHA-256 of the output of TensorFlow 2.21 for PyDTNN's operations.

    decode_jpeg(channels=3, dct_method="INTEGER_ACCURATE"), central_crop(0.875), compat.v1 resize_bilinear([227, 227]),
    cast to uint8, transposed to NCHW.
    """
    units = read("tfrecord", shared_data / "imagenet_tfrecord", 0, {}).units
    found = {unit.origin.name: hashlib.sha256(unit.read().inputs[0].tobytes()).hexdigest() for unit in units}
    assert found == TENSORFLOW


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
        "label that is no integer": record(example(image_encoded=JPEG, image_class_label=5.0)),
        "broken image": sample(image=JPEG[:300]),
        "no jpeg": sample(image=b"hello"),
    }[kind]


KINDS = ["flipped data", "flipped checksum", "no example", "no image", "no label", "negative label", "large label", "label that is text", "label that is no integer", "broken image", "no jpeg"]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_corrupt_record_is_named_or_left_out_and_counted(tmp_path, kind):
    content = sample(1) + bad(kind) + sample(3)
    with pytest.raises(
        UserError, match=rf"train-00000-of-00001: record 1 at byte {len(sample(1))}: .*on_corrupt: skip"
    ):
        one_file(tmp_path, content)
    block = one_file(tmp_path, content, on_corrupt="skip")
    assert block.labels.ravel().tolist() == [1, 3]
    (skipped,) = block.skipped
    assert skipped.startswith("record 1: ")
    assert "rest of the file" not in skipped


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
    (skipped,) = block.skipped
    assert skipped.startswith("record 1: ")
    assert skipped.endswith("the rest of the file cannot be read")


@pytest.mark.parametrize("content", [b"", bad("no jpeg"), b"\x00" * 100, b"<html>"])
def test_a_file_without_any_sample_is_an_error_even_when_skipping(tmp_path, content):
    with pytest.raises(UserError, match="train-00000-of-00001: no usable record"):
        one_file(tmp_path, content, on_corrupt="skip")


PAYLOADS = [b"abcde", b"", b"x" * 20]
FILE = b"".join(record(payload) for payload in PAYLOADS)
STARTS = np.cumsum([0] + [16 + len(payload) for payload in PAYLOADS])


@pytest.fixture(scope="session")
def one_path(tmp_path_factory):
    return tmp_path_factory.mktemp("records") / "train-00000-of-00001"


def test_no_flipped_bit_passes_unnoticed(one_path):
    """A flipped bit damages only its record; in a record's length it also hides all later records."""
    for bit in range(len(FILE) * 8):
        damaged = bytearray(FILE)
        damaged[bit // 8] ^= 1 << bit % 8
        one_path.write_bytes(damaged)
        items = [item for _, _, item in read_records(one_path)]
        hit = int(np.searchsorted(STARTS, bit // 8, side="right")) - 1
        assert items[:hit] == PAYLOADS[:hit]
        assert isinstance(items[hit], ValueError), bit
        in_length = bit // 8 - STARTS[hit] < 12
        assert items[hit + 1 :] == ([] if in_length else PAYLOADS[hit + 1 :])


def test_a_cut_file_gives_its_whole_records_and_one_error(one_path):
    for length in range(len(FILE)):
        one_path.write_bytes(FILE[:length])
        items = [item for _, _, item in read_records(one_path)]
        whole = int(np.searchsorted(STARTS, length, side="right")) - 1
        assert items[:whole] == PAYLOADS[:whole]
        assert len(items) - whole == (length > STARTS[whole])
        assert all(isinstance(item, ValueError) for item in items[whole:])


def damage(data, kind, at, junk):
    """Return the data cut, overwritten or lengthened at a fraction of its length.

    Args:
        data: the intact bytes.
        kind: "cut", "overwrite" or "insert".
        at: place of the damage as a fraction of the length.
        junk: bytes that overwrite or lengthen the data.
    """
    place = int(at * len(data))
    return {
        "cut": data[:place],
        "overwrite": data[:place] + junk + data[place + len(junk) :],
        "insert": data[:place] + junk + data[place:],
    }[kind]


KINDS_OF_DAMAGE = st.sampled_from(["cut", "overwrite", "insert"])
PLACE = st.floats(0, 1, exclude_max=True)


@pytest.mark.long
@settings(max_examples=150, deadline=None)
@given(kind=KINDS_OF_DAMAGE, at=PLACE, junk=st.binary(min_size=1, max_size=30))
def test_a_damaged_file_is_read_or_refused_by_name(one_path, kind, at, junk):
    """A damaged file raises only UserError with its name, and yields only samples that were written."""
    one_path.write_bytes(damage(sample(1) + sample(2) + sample(3), kind, at, junk))
    (unit,) = read("tfrecord", one_path.parent, 0, {"size": 8, "on_corrupt": "skip"}).units
    try:
        block = unit.read()
    except UserError as error:
        named = str(one_path) in str(error)
    else:
        named = True
        assert set(block.labels.ravel().tolist()) <= {1, 2, 3}
        assert (abs(block.inputs[0].astype(int) - 77) < 3).all()
    assert named


@pytest.mark.long
@settings(max_examples=300, deadline=None)
@given(kind=KINDS_OF_DAMAGE, at=PLACE, junk=st.binary(min_size=1, max_size=30))
def test_a_damaged_example_is_parsed_or_a_value_error(kind, at, junk):
    """A faulty writer can give a damaged example a valid checksum; parsing it raises at most ValueError."""
    try:
        features = parse(
            damage(example(image_encoded=b"x" * 50, image_class_label=3, box=0.5), kind, at, junk)
        )
    except ValueError:
        return
    assert all(isinstance(name, str) and isinstance(values, list) for name, values in features.items())


def test_a_file_that_went_meanwhile_is_named(tmp_path):
    path = tmp_path / "train-00000-of-00001"
    path.touch()
    (unit,) = read("tfrecord", tmp_path, 0, {}).units
    path.unlink()
    with pytest.raises(UserError, match=r"cannot read .*train-00000-of-00001: No such file"):
        unit.read()


def test_units_can_be_sent_to_other_processes(shared_data):
    unit = read("tfrecord", shared_data / "imagenet_tfrecord", 0, {"size": 8}).units[0]
    sent = pickle.loads(pickle.dumps(unit))
    assert np.array_equal(sent.read().inputs[0], unit.read().inputs[0])


def test_listing_all_of_imagenet_takes_milliseconds(tmp_path):
    for split, count in (("train", 1024), ("validation", 128)):
        for index in range(count):
            (tmp_path / f"{split}-{index:05d}-of-{count:05d}").touch()
    (tmp_path / "README").touch()
    start = process_time()
    names = list_shards(tmp_path)
    assert process_time() - start < 0.5  # 2 ms on an idle machine
    assert len(names) == 1152
    assert names[:2] == ["train/train-00000-of-01024", "train/train-00001-of-01024"]
    assert names[-1] == "test/validation-00127-of-00128"


def test_test_files_are_the_test(tmp_path):
    for name in ("test-00000-of-00001", "train-00000-of-00001"):
        (tmp_path / name).touch()
    assert list_shards(tmp_path) == ["train/train-00000-of-00001", "test/test-00000-of-00001"]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([], "no TFRecords found"),
        (["validation-00000-of-00001"], "no TFRecords found"),
        (
            ["train-00000-of-00003"],
            "2 of 3 TFRecords are missing: train-00001-of-00003, train-00002-of-00003",
        ),
        (["train-00000-of-00009"], r"8 of 9 .* missing: .*, \.\.\."),
        (
            ["train-00000-of-00001", "validation-00001-of-00002"],
            "1 of 2 TFRecords are missing: validation-00000-of-00002",
        ),
        (
            ["train-00000-of-00001", "train-00000-of-00002", "train-00001-of-00002"],
            r"train files of several sets \(train-\*-of-00001 and train-\*-of-00002\)",
        ),
        (["train-00000-of-00001", "train-00001-of-00001"], "the number of train-00001-of-00001 is not below"),
        (["train-00000-of-00000"], "the number of train-00000-of-00000 is not below"),
    ],
)
def test_missing_files_are_named(tmp_path, names, message):
    for name in names:
        (tmp_path / name).touch()
    with pytest.raises(UserError, match=message):
        list_shards(tmp_path)


def test_an_absent_folder_is_named(tmp_path):
    with pytest.raises(UserError, match=r"cannot read .*nowhere: No such file"):
        list_shards(tmp_path / "nowhere")
