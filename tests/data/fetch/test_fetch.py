"""Original files from packages, folders, archives and addresses, and the record of what was fetched."""

import gzip
import hashlib
import json
import subprocess
import sys
import zipfile
from dataclasses import replace

import pytest

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.catalog import DIGITS, MNIST, DatasetSpec, SourceFile, find_dataset
from nnlo_lib.data.fetch import fetch as fetching
from nnlo_lib.data.fetch.fetch import fetch
from nnlo_lib.data.fetch.record import FetchRecord

CONTENT = bytes(range(256)) * 400
ARCHIVE = gzip.compress(CONTENT, mtime=0)
MINE = DatasetSpec(name="mine", reader="folder")


def names(folder):
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def zipped(path, **files):
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in (files or {"top/a/1.txt": "one", "top/b/2.txt": "two"}).items():
            archive.writestr(name, content)
    return path


def test_digits_are_copied_from_the_installed_package(tmp_path):
    fetch(DIGITS, tmp_path)
    assert names(tmp_path) == ["digits.csv.gz", "fetched.json"]
    with pytest.raises(UserError, match="package no_such_package, which is not installed"):
        fetch(replace(DIGITS, embedded="no_such_package/data"), tmp_path / "other")


def test_mnist_from_a_folder(shared_data, tmp_path):
    fetch(MNIST, tmp_path / "raw", str(shared_data / "mnist"))
    for file in MNIST.files:
        assert (tmp_path / "raw" / file.name).read_bytes() == (shared_data / "mnist" / file.name).read_bytes()


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_mnist_with_dots_in_the_names(shared_data, tmp_path, suffix):
    """As copies on Kaggle are named."""
    (tmp_path / "dotted").mkdir()
    for file in MNIST.files:
        content = (shared_data / "mnist" / file.name).read_bytes()
        name = file.name.replace("-idx", ".idx").removesuffix(".gz") + suffix
        (tmp_path / "dotted" / name).write_bytes(content if suffix else gzip.decompress(content))
    fetch(MNIST, tmp_path / "raw", str(tmp_path / "dotted"))
    assert set(names(tmp_path / "raw")) == {"fetched.json"} | {
        file.name.removesuffix(".gz") + suffix for file in MNIST.files
    }


def test_a_decompressed_source_is_accepted(one_file, tmp_path):
    (tmp_path / "one").write_bytes(CONTENT)
    raw = tmp_path / "raw"
    raw.mkdir()
    (raw / "one.gz").write_bytes(b"something else")
    fetch(one_file, raw, str(tmp_path))
    assert names(raw) == ["fetched.json", "one"]


def test_right_files_are_kept_and_wrong_ones_replaced(one_file, tmp_path):
    (tmp_path / "one.gz").write_bytes(ARCHIVE)
    path = tmp_path / "raw/one.gz"
    fetch(one_file, path.parent, str(tmp_path))
    first = path.stat().st_ino
    fetch(one_file, path.parent, str(tmp_path))
    assert path.stat().st_ino == first
    path.write_bytes(ARCHIVE[:-20])
    fetch(one_file, path.parent, str(tmp_path))
    assert path.read_bytes() == ARCHIVE


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (ARCHIVE[:-20], "truncated"),
        (CONTENT[:-1], "not the official one.gz"),
        (b"", "not the official one.gz"),
        (b"\x1f\x8b" + bytes(100), "damaged"),
    ],
)
def test_a_file_with_other_content_is_refused(one_file, tmp_path, body, message):
    (tmp_path / "one.gz").write_bytes(body)
    with pytest.raises(UserError, match=message) as error:
        fetch(one_file, tmp_path / "raw", str(tmp_path))
    assert str(tmp_path / "one.gz") in str(error.value)
    assert names(tmp_path / "raw") == []


def test_a_missing_source_names_the_files_wanted(tmp_path):
    wanted = r"data\.source: train-images-idx3-ubyte.gz not found in .*t10k-labels-idx1"
    with pytest.raises(UserError, match=wanted):
        fetch(MNIST, tmp_path / "raw", str(tmp_path))


def test_the_record_has_source_and_checksums(one_file, tmp_path):
    (tmp_path / "one.gz").write_bytes(ARCHIVE)
    fetched = fetch(one_file, tmp_path / "raw", str(tmp_path))
    digest = hashlib.sha256(CONTENT).hexdigest()
    assert json.loads((tmp_path / "raw" / "fetched.json").read_text()) == {
        "dataset": "one",
        "source": str(tmp_path),
        "folder": ".",
        "files": [{"name": "one.gz", "bytes": len(ARCHIVE), "content_sha256": digest, "md5": None}],
        "extracted": None,
    }
    assert FetchRecord.load(tmp_path / "raw") == fetched


@pytest.mark.parametrize("text", ["", "[]", '{"dataset": "x"}', "\xff"])
def test_a_damaged_record_is_named(tmp_path, text):
    (tmp_path / "fetched.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(UserError, match=r"fetched\.json: damaged"):
        FetchRecord.load(tmp_path)


def test_a_published_md5_serves_as_a_checksum(tmp_path):
    (tmp_path / "one.gz").write_bytes(ARCHIVE)
    dataset = DatasetSpec("one", "idx", files=(SourceFile("one.gz", md5=hashlib.md5(ARCHIVE).hexdigest()),))
    fetch(dataset, tmp_path / "raw", str(tmp_path))
    (tmp_path / "one.gz").write_bytes(gzip.compress(CONTENT, mtime=1))
    with pytest.raises(UserError, match=r"the MD5 is .*data\.dataset .* data\.reader: \{name: idx\}"):
        fetch(dataset, tmp_path / "other", str(tmp_path))


def test_own_files_are_read_from_their_folder_or_extracted(tmp_path):
    (tmp_path / "mine").mkdir()
    assert fetch(MINE, tmp_path / "raw", str(tmp_path / "mine")).path == tmp_path / "mine"
    assert names(tmp_path / "raw") == ["fetched.json"]
    fetched = fetch(MINE, tmp_path / "new", str(zipped(tmp_path / "mine.zip")))
    assert fetched.path == tmp_path / "new/files/top"
    assert (fetched.path / "b" / "2.txt").read_text() == "two"


@pytest.mark.parametrize("query", ["", "?download=1", "?a=b/c#d"])
def test_an_own_archive_from_an_address_with_a_query(server, tmp_path, query):
    server.answers["/x/mine.zip" + query.split("#")[0]] = zipped(tmp_path / "mine.zip").read_bytes()
    fetched = fetch(MINE, tmp_path / "raw", f"{server.url}/x/mine.zip{query}")
    assert (fetched.path / "a" / "1.txt").read_text() == "one"
    assert FetchRecord.load(tmp_path / "raw").files[0]["name"] == "mine.zip"


@pytest.mark.parametrize("remote", [False, True])
def test_official_files_are_found_in_an_archive(server, one_file, tmp_path, remote):
    path = zipped(tmp_path / "all.zip", **{"top/one.gz": ARCHIVE})
    server.answers["/all.zip"] = path.read_bytes()
    fetched = fetch(one_file, tmp_path / "raw", f"{server.url}/all.zip" if remote else str(path))
    assert (fetched.path / "one.gz").read_bytes() == ARCHIVE
    bad = zipped(tmp_path / "bad.zip", **{"one.gz": ARCHIVE[:-20]})
    with pytest.raises(UserError, match="truncated"):
        fetch(one_file, tmp_path / "other", str(bad))
    assert not (tmp_path / "other" / "one.gz").exists()


@pytest.mark.parametrize("source", ["folder", "archive", "url"])
def test_the_other_official_form_serves_if_only_it_exists(server, tmp_path, source):
    folder = tmp_path / "in"
    folder.mkdir()
    first, second = zipped(folder / "first.zip"), zipped(folder / "second.zip", **{"top/other.txt": "other"})
    digests = [hashlib.md5(path.read_bytes()).hexdigest() for path in (first, second)]
    files = {
        "files": (SourceFile("first.zip", md5=digests[0]),),
        "instead": SourceFile("second.zip", md5=digests[1]),
    }
    dataset = DatasetSpec("two", "folder", **files)
    assert fetch(dataset, tmp_path / "both", str(folder)).files[0]["name"] == "first.zip"
    first.unlink()
    server.answers["/second.zip"] = second.read_bytes()
    places = {"folder": str(folder), "archive": str(second), "url": f"{server.url}/second.zip"}
    fetched = fetch(dataset, tmp_path / "raw", places[source])
    assert (fetched.path / "other.txt").read_text() == "other"
    assert fetched.files[0]["name"] == "second.zip"


@pytest.mark.parametrize(
    ("name", "source", "message"),
    [
        ("mine", None, "data.source: required, because data set mine has no download address"),
        ("imagenet", None, "data.source: .*imagenet.*image-net.org.*imagenet_to_gcs"),
        ("mine", "/no/such/folder", "/no/such/folder is neither an existing folder nor an archive"),
        ("mine", "/no/such.zip", "file not found: /no/such.zip"),
        ("mine", "https://127.0.0.1/folder/", "nor an archive"),
    ],
)
def test_own_data_that_do_not_exist_are_named(tmp_path, name, source, message):
    with pytest.raises(UserError, match=message):
        fetch(find_dataset(name) if name == "imagenet" else MINE, tmp_path / "raw", source)
    assert names(tmp_path / "raw") == []


@pytest.mark.processes
def test_the_import_of_fetching_loads_no_heavy_package():
    heavy = {"numpy", "pooch", "requests", "h5py", "pandas", "pydantic", "sklearn", "torch"}
    code = f"import sys, {fetching.__name__}; print(*{heavy!r}.intersection(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
