"""Manifests, and damage of shards and manifests: a sentence or no effect."""

import json
import shutil
import subprocess
import sys

import h5py
import numpy as np
import pytest
from helpers.synthetic_store import handmade

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.describe import describe
from nnlo_lib.data.store.manifest import DataManifest
from nnlo_lib.data.store.shard import map_shard, write_shard
from nnlo_lib.data.store.split import Split

SAMPLES = 40
FEATURES = np.arange(SAMPLES * 3, dtype=np.float32).reshape(SAMPLES, 3)
LABELS = np.arange(SAMPLES) % 4


@pytest.fixture
def moved(digits, tmp_path) -> DataManifest:
    """Return a copy of the digits in another folder."""
    shutil.copytree(digits.folder, tmp_path / digits.format)
    return DataManifest.load(tmp_path / digits.format)


def test_a_store_can_be_moved(moved, digits):
    assert moved.splits == digits.splits
    assert moved.folder != digits.folder
    moved.verify()


def test_fields_are_plain_json(digits):
    fields = json.loads((digits.folder / "manifest.json").read_text())
    assert fields["dataset"] == "digits"
    (features,) = fields["inputs"]
    assert (features["name"], features["shape"], features["dtype"]) == ("features", [1, 8, 8], "uint8")
    assert (fields["labels"]["name"], fields["labels"]["shape"], fields["classes"]) == ("labels", [], 10)
    assert fields["scale"] == 1 / 16
    assert fields["splits"]["train"]["samples"] == 1442
    names = "file samples bytes sha256 skipped non_finite"
    assert set(fields["splits"]["train"]["shards"][0]) == set(names.split())


def test_a_missing_manifest_is_answered_with_the_command(tmp_path):
    message = r"manifest.json: data set not found; convert the data of the experiment"
    with pytest.raises(UserError, match=message):
        DataManifest.load(tmp_path / "manifest.json")


WRITER = "import h5py, sys; file = h5py.File(sys.argv[1], 'r+'); print('open', flush=True); sys.stdin.read()"


@pytest.mark.processes
def test_a_shard_that_this_or_another_process_has_open_is_read(tmp_path):
    path = tmp_path / "a.h5"
    write_shard(path, "hdf5", {"features": FEATURES})
    with h5py.File(path, "r+"):
        assert np.array_equal(map_shard(path, ["features"])[0], FEATURES)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", WRITER, path], text=True, **pipes) as writer:
        assert writer.stdout.readline() == "open\n"
        assert np.array_equal(map_shard(path, ["features"])[0], FEATURES)
        writer.stdin.close()


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"splits": {}}', '{"splits": {"train": 3}}', "\xff"])
def test_a_damaged_manifest_is_named(tmp_path, text):
    (tmp_path / "manifest.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(UserError, match=r"manifest.json: damaged"):
        DataManifest.load(tmp_path)


def reason(folder):
    """Return the sentence that refuses a store, or an empty string; any other error fails the test."""
    try:
        manifest = DataManifest.load(folder)
        Split(manifest, "train").take(np.arange(SAMPLES))
        describe(manifest, {})
    except UserError as error:
        return str(error)
    return ""


def edit(folder, path, value):
    """Change one field of the manifest."""
    fields = section = json.loads((folder / "manifest.json").read_text())
    for key in path[:-1]:
        section = section[key]
    section[path[-1]] = value
    (folder / "manifest.json").write_text(json.dumps(fields))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("step", [13, pytest.param(1, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("format", ["hdf5", "npz"])
def test_a_flip_of_a_byte_of_a_shard_is_a_sentence_or_harmless(tmp_path, format, step):
    """Flip bytes outside the values, where only a checksum of the whole file can find a change."""
    shard = tmp_path / ("shard.h5" if format == "hdf5" else "shard.npz")
    write_shard(shard, format, {"features": FEATURES, "labels": LABELS})
    content = shard.read_bytes()
    folder = handmade(tmp_path / "store", {"train": (FEATURES, LABELS)}, scale=1.0).folder
    for key, value in (("file", shard.name), ("bytes", len(content))):
        edit(folder, ("splits", "train", "shards", 0, key), value)
    starts = [(content.index(array.tobytes()), array.nbytes) for array in (FEATURES, LABELS)]
    values = {at for start, size in starts for at in range(start, start + size)}
    refused = 0
    for at in sorted(set(range(len(content))) - values)[::step]:
        for bit in (0, 7) if format == "npz" else (at % 8,):
            flipped = content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :]
            (folder / shard.name).write_bytes(flipped)
            refused += str(folder) in reason(folder)
    assert refused > 50 / step


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("splits", "train", "samples"), "3", r'splits\.train\.samples: Input should be .* not "3"'),
        (("inputs",), {}, r"inputs: Input should be a valid (array|tuple), not \{\}"),
        (
            ("splits", "train", "shards", 0, "file"),
            "../outside.npz",
            r"manifest\.json: damaged .*shards\.0\.file: ",
        ),
    ],
)
def test_a_wrong_field_is_named(tmp_path, path, value, message):
    handmade(tmp_path, {"train": (FEATURES, LABELS)}, scale=1.0)
    edit(tmp_path, path, value)
    with pytest.raises(UserError, match=message):
        Split(DataManifest.load(tmp_path), "train")


def test_a_flipped_bit_of_a_value_is_found_by_the_checksum(moved):
    shard = moved.splits["train"].shards[2]
    content = bytearray((moved.folder / shard.file).read_bytes())
    content[-1] ^= 1
    (moved.folder / shard.file).write_bytes(content)
    with pytest.raises(UserError, match=rf"{shard.file} is unreadable \(the checksum differs"):
        moved.verify()


SPOILED = {
    "truncated": lambda content: content[: len(content) // 2],
    "empty": lambda _: b"",
    "zeros": lambda content: bytes(len(content)),
    "gone": None,
}


@pytest.mark.parametrize("how", SPOILED)
def test_a_damaged_shard_is_named_with_the_command_that_mends_the_store(moved, how):
    shard = moved.splits["train"].shards[1]
    path, size = moved.folder / shard.file, shard.bytes
    if how == "gone":
        path.unlink()
    else:
        path.write_bytes(SPOILED[how](path.read_bytes()))
        size = path.stat().st_size
    # Damage is found also if the manifest agrees on the size.
    for expected in (shard.bytes, size):
        edit(moved.folder, ("splits", "train", "shards", 1, "bytes"), expected)
        with pytest.raises(UserError) as error:
            Split(DataManifest.load(moved.folder), "train")
        assert f"shard {path} is unreadable" in str(error.value)
        assert str(error.value).endswith(f"rm -f {path} {moved.folder / 'manifest.json'}")
