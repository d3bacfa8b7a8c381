import json
import shutil

import pytest

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.store.manifest import DataManifest


@pytest.fixture
def copy(digits, tmp_path) -> DataManifest:
    shutil.copytree(digits.folder, tmp_path / digits.format)
    return DataManifest.load(tmp_path / digits.format)


def test_a_store_can_be_moved(copy, digits):
    assert copy.splits == digits.splits
    assert copy.folder != digits.folder
    copy.verify()


def test_fields_are_plain_json(digits):
    fields = json.loads((digits.folder / "manifest.json").read_text())
    assert fields["dataset"] == "digits"
    (features,) = fields["inputs"]
    assert (features["name"], features["shape"], features["dtype"]) == ("features", [1, 8, 8], "uint8")
    assert (fields["labels"]["name"], fields["labels"]["shape"], fields["classes"]) == ("labels", [], 10)
    assert fields["scale"] == 1 / 16
    assert fields["splits"]["train"]["samples"] == 1442
    assert set(fields["splits"]["train"]["shards"][0]) == {
        "file",
        "samples",
        "bytes",
        "sha256",
        "skipped",
        "non_finite",
    }


def test_missing_manifest_says_what_to_run(tmp_path):
    with pytest.raises(
        UserError, match=r"manifest.json: data set not found; convert the data of the experiment"
    ):
        DataManifest.load(tmp_path / "manifest.json")


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"splits": {}}', '{"splits": {"train": 3}}', "\xff"])
def test_damaged_manifest_is_named(tmp_path, text):
    (tmp_path / "manifest.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(UserError, match=r"manifest.json: damaged"):
        DataManifest.load(tmp_path)


def test_one_flipped_bit_is_found(copy):
    shard = copy.splits["train"].shards[2]
    content = bytearray((copy.folder / shard.file).read_bytes())
    content[-1] ^= 1
    (copy.folder / shard.file).write_bytes(content)
    with pytest.raises(UserError, match=rf"{shard.file} is unreadable \(the checksum differs"):
        copy.verify()
