"""Damaged shards and manifests made by hand: every change of a header or a field gives a sentence or no effect."""

import copy
import json
import shutil
import warnings

import numpy as np
import pytest
from helpers.synthetic_store import handmade

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.inspect.describe import describe
from nnlo_lib.data.store.manifest import DataManifest
from nnlo_lib.data.store.shard import write_shard
from nnlo_lib.data.store.split import Split

SAMPLES = 40
FEATURES = np.arange(SAMPLES * 3, dtype=np.float32).reshape(SAMPLES, 3)
LABELS = np.arange(SAMPLES) % 4
WRONG = [None, -1, 0, 1.5, True, "x", "../x", "/etc/passwd", "", [], {}, [[]], {"x": 1}, 10**30, float("nan")]


def reason(folder):
    """Return the sentence that refuses a store, or an empty string; any other error fails the test."""
    try:
        manifest = DataManifest.load(folder)
        Split(manifest, "train").take(np.arange(SAMPLES))
        describe(manifest, {})
    except UserError as error:
        return str(error)
    return ""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("format", ["hdf5", "npz"])
def test_a_flip_of_any_byte_of_a_shard_is_a_sentence(tmp_path, format):
    """Flip each byte outside the values, where only a checksum of the whole file can find a change."""
    shard = tmp_path / ("shard.h5" if format == "hdf5" else "shard.npz")
    write_shard(shard, format, {"features": FEATURES, "labels": LABELS})
    content = shard.read_bytes()
    store = handmade(tmp_path / "store", {"train": (FEATURES, LABELS)}, scale=1.0)
    fields = json.loads((store.folder / "manifest.json").read_text())
    (entry,) = fields["splits"]["train"]["shards"]
    entry |= {"file": shard.name, "bytes": len(content)}
    (store.folder / "manifest.json").write_text(json.dumps(fields))
    path = store.folder / shard.name
    values = {
        at
        for array in (FEATURES, LABELS)
        for at in range(content.index(array.tobytes()), content.index(array.tobytes()) + array.nbytes)
    }
    refused = 0
    for at in sorted(set(range(len(content))) - values):
        for bit in (0, 7) if format == "npz" else (at % 8,):
            path.write_bytes(content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :])
            refused += str(path.parent) in reason(store.folder)
    assert refused > 50


def places(fields, path=()):
    """Yield the path of every field, of sections and lists as well."""
    for key, value in fields.items() if isinstance(fields, dict) else enumerate(fields):
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from places(value, (*path, key))


def changed(fields, path, value):
    fields = copy.deepcopy(fields)
    section = fields
    for key in path[:-1]:
        section = section[key]
    if value is None and isinstance(section, dict):
        del section[path[-1]]
    else:
        section[path[-1]] = value
    return fields


def test_any_change_of_a_field_of_the_manifest_is_a_sentence(tmp_path):
    handmade(tmp_path, {"train": (FEATURES, LABELS), "test": (FEATURES, LABELS)}, scale=1.0)
    fields = json.loads((tmp_path / "manifest.json").read_text())
    refused = 0
    for path in places(fields):
        for wrong in WRONG:
            (tmp_path / "manifest.json").write_text(json.dumps(changed(fields, path, wrong)))
            refused += str(tmp_path) in reason(tmp_path)
    assert refused > 400


@pytest.mark.parametrize("file", ["../outside.npz", "/tmp/outside.npz", "a/../../outside.npz"])
def test_a_shard_outside_the_store_is_refused(tmp_path, file):
    handmade(tmp_path / "store", {"train": (FEATURES, LABELS)}, scale=1.0)
    shutil.copy(tmp_path / "store/train-00000-of-00001.npz", tmp_path / "outside.npz")
    text = (tmp_path / "store/manifest.json").read_text()
    (tmp_path / "store/manifest.json").write_text(text.replace("train-00000-of-00001.npz", file))
    with pytest.raises(
        UserError, match=r"manifest\.json: damaged .* is not a file in the folder of the store"
    ):
        DataManifest.load(tmp_path / "store")


def test_values_of_another_byte_order_are_refused(tmp_path):
    store = handmade(tmp_path, {"train": (FEATURES, LABELS)}, scale=1.0)
    path = tmp_path / store.splits["train"].shards[0].file
    path.write_bytes(path.read_bytes().replace(b"'<f4'", b"'>f4'"))
    with pytest.raises(UserError, match="is unreadable"):
        Split(store, "train")


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("splits", "train", "samples"), -3, r"splits\.train\.samples: Input should be .* not -3"),
        (("classes",), 3, r"the label of sample 3 is class 3, but the manifest has 3 classes"),
        (("inputs",), {}, r"inputs: Input should be a valid (array|tuple), not \{\}"),
        (("settings", "reader"), None, r"settings\.reader: not a section"),
    ],
)
def test_the_field_is_named(tmp_path, path, value, message):
    handmade(tmp_path, {"train": (FEATURES, LABELS)}, scale=1.0)
    fields = json.loads((tmp_path / "manifest.json").read_text())
    (tmp_path / "manifest.json").write_text(json.dumps(changed(fields, path, value)))
    with pytest.raises(UserError, match=message), warnings.catch_warnings():
        Split(DataManifest.load(tmp_path), "train")
