import gzip
import hashlib
import json
import subprocess
import sys
from dataclasses import replace

import pytest

from nnlo_lib.data import fetch as fetching
from nnlo_lib.data.catalog import DIGITS, MNIST
from nnlo_lib.data.fetch import fetch, write_record
from nnlo_lib.errors import UserError

CONTENT = bytes(range(256)) * 400
ARCHIVE = gzip.compress(CONTENT, mtime=0)


def names(folder):
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def test_digits_come_from_the_installed_package(tmp_path):
    (path,) = fetch(DIGITS, tmp_path)
    assert path == tmp_path / "digits.csv.gz"
    assert names(tmp_path) == ["digits.csv.gz"]


def test_absent_package_is_named(tmp_path):
    with pytest.raises(UserError, match="package no_such_package, which is not installed"):
        fetch(replace(DIGITS, embedded="no_such_package/data"), tmp_path)


def test_mnist_from_a_folder(shared_data, tmp_path):
    paths = fetch(MNIST, tmp_path / "raw", str(shared_data / "mnist"))
    assert [path.name for path in paths] == [file.name for file in MNIST.files]
    for path in paths:
        assert path.read_bytes() == (shared_data / "mnist" / path.name).read_bytes()


def test_decompressed_source_is_taken_as_it_is(one_file, tmp_path):
    (tmp_path / "one").write_bytes(CONTENT)
    raw = tmp_path / "raw"
    raw.mkdir()
    (raw / "one.gz").write_bytes(b"something else")
    assert fetch(one_file, raw, str(tmp_path)) == [raw / "one"]
    assert names(raw) == ["one"]


def test_right_files_are_kept_and_wrong_ones_replaced(one_file, tmp_path):
    (tmp_path / "one.gz").write_bytes(ARCHIVE)
    raw = tmp_path / "raw"
    (path,) = fetch(one_file, raw, str(tmp_path))
    first = path.stat().st_ino
    fetch(one_file, raw, str(tmp_path))
    assert path.stat().st_ino == first
    path.write_bytes(ARCHIVE[:-20])
    fetch(one_file, raw, str(tmp_path))
    assert path.read_bytes() == ARCHIVE


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (ARCHIVE[:-20], "truncated"),
        (CONTENT, None),
        (CONTENT[:-1], "not the official one.gz"),
        (b"", "not the official one.gz"),
        (b"\x1f\x8b" + bytes(100), "damaged"),
    ],
)
def test_only_the_right_content_gets_the_name(one_file, tmp_path, body, message):
    (tmp_path / "one.gz").write_bytes(body)
    raw = tmp_path / "raw"
    if message is None:
        fetch(one_file, raw, str(tmp_path))
        return
    with pytest.raises(UserError, match=message) as error:
        fetch(one_file, raw, str(tmp_path))
    assert str(tmp_path / "one.gz") in str(error.value)
    assert names(raw) == []


def test_missing_source_names_the_files_wanted(tmp_path):
    with pytest.raises(UserError, match=r"no train-images-idx3-ubyte.gz in .*data.source.*t10k-labels-idx1"):
        fetch(MNIST, tmp_path / "raw", str(tmp_path))


def test_record_lists_every_file(one_file, tmp_path):
    (tmp_path / "one.gz").write_bytes(ARCHIVE)
    paths = fetch(one_file, tmp_path / "raw", str(tmp_path))
    record = json.loads(write_record(one_file, paths, tmp_path / "raw", str(tmp_path)).read_text())
    digest = hashlib.sha256(CONTENT).hexdigest()
    assert record == {
        "dataset": "one",
        "source": str(tmp_path),
        "files": [{"name": "one.gz", "bytes": len(ARCHIVE), "content_sha256": digest}],
    }


def test_fetching_stays_light():
    """Import what `scripts/fetch.py` imports and look that nothing heavy came along."""
    heavy = {"numpy", "pooch", "requests", "h5py", "pandas", "pydantic", "sklearn", "torch"}
    code = f"import sys, {fetching.__name__}; print(*{heavy!r}.intersection(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
