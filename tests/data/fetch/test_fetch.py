import fcntl
import gzip
import hashlib
import json
import subprocess
import sys
import zipfile
from dataclasses import replace

import pytest

from nnlo_lib.core import file_lock
from nnlo_lib.core.errors import UserError
from nnlo_lib.data.catalog import DIGITS, MNIST, DatasetSpec, SourceFile, find_dataset, user_dataset
from nnlo_lib.data.fetch import fetch as fetching
from nnlo_lib.data.fetch.fetch import fetch
from nnlo_lib.data.fetch.record import FetchRecord

CONTENT = bytes(range(256)) * 400
ARCHIVE = gzip.compress(CONTENT, mtime=0)


def names(folder):
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def test_digits_come_from_the_installed_package(tmp_path):
    fetch(DIGITS, tmp_path)
    assert names(tmp_path) == ["digits.csv.gz", "fetched.json"]


def test_absent_package_is_named(tmp_path):
    with pytest.raises(UserError, match="package no_such_package, which is not installed"):
        fetch(replace(DIGITS, embedded="no_such_package/data"), tmp_path)


def test_mnist_from_a_folder(shared_data, tmp_path):
    fetch(MNIST, tmp_path / "raw", str(shared_data / "mnist"))
    for file in MNIST.files:
        assert (tmp_path / "raw" / file.name).read_bytes() == (shared_data / "mnist" / file.name).read_bytes()


def test_decompressed_source_is_taken_as_it_is(one_file, tmp_path):
    (tmp_path / "one").write_bytes(CONTENT)
    raw = tmp_path / "raw"
    raw.mkdir()
    (raw / "one.gz").write_bytes(b"something else")
    fetch(one_file, raw, str(tmp_path))
    assert names(raw) == ["fetched.json", "one"]


def test_right_files_are_kept_and_wrong_ones_replaced(one_file, tmp_path):
    (tmp_path / "one.gz").write_bytes(ARCHIVE)
    raw = tmp_path / "raw"
    fetch(one_file, raw, str(tmp_path))
    path = raw / "one.gz"
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
    with pytest.raises(
        UserError, match=r"data\.source: train-images-idx3-ubyte.gz not found in .*t10k-labels-idx1"
    ):
        fetch(MNIST, tmp_path / "raw", str(tmp_path))


def test_record_says_what_came_from_where(one_file, tmp_path):
    (tmp_path / "one.gz").write_bytes(ARCHIVE)
    fetched = fetch(one_file, tmp_path / "raw", str(tmp_path))
    record = json.loads((tmp_path / "raw" / "fetched.json").read_text())
    digest = hashlib.sha256(CONTENT).hexdigest()
    assert record == {
        "dataset": "one",
        "source": str(tmp_path),
        "folder": ".",
        "files": [{"name": "one.gz", "bytes": len(ARCHIVE), "content_sha256": digest, "md5": None}],
        "extracted": None,
    }
    assert FetchRecord.load(tmp_path / "raw") == fetched


def test_a_published_md5_is_as_good_as_a_checksum_of_the_content(tmp_path):
    (tmp_path / "one.gz").write_bytes(ARCHIVE)
    dataset = DatasetSpec("one", "idx", files=(SourceFile("one.gz", md5=hashlib.md5(ARCHIVE).hexdigest()),))
    fetch(dataset, tmp_path / "raw", str(tmp_path))
    (tmp_path / "one.gz").write_bytes(gzip.compress(CONTENT, mtime=1))
    with pytest.raises(UserError, match=r"the MD5 is .*data\.dataset .* data\.reader: \{name: idx\}"):
        fetch(dataset, tmp_path / "other", str(tmp_path))


def pack(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("top/a/1.txt", "one")
        archive.writestr("top/b/2.txt", "two")
    return path


def test_own_folder_is_read_where_it_lies(tmp_path):
    source = tmp_path / "mine"
    source.mkdir()
    fetched = fetch(user_dataset("mine", "folder"), tmp_path / "raw", str(source))
    assert fetched.path == source
    assert names(tmp_path / "raw") == ["fetched.json"]


def test_own_archive_is_extracted(tmp_path):
    fetched = fetch(user_dataset("mine", "folder"), tmp_path / "raw", str(pack(tmp_path / "mine.zip")))
    assert fetched.path == tmp_path / "raw" / "files" / "top"
    assert (fetched.path / "b" / "2.txt").read_text() == "two"


def test_own_archive_from_the_web(server, tmp_path):
    server.answers["/x/mine.zip"] = pack(tmp_path / "mine.zip").read_bytes()
    fetched = fetch(user_dataset("mine", "folder"), tmp_path / "raw", f"{server.url}/x/mine.zip")
    assert (fetched.path / "a" / "1.txt").read_text() == "one"
    assert FetchRecord.load(tmp_path / "raw").files[0]["name"] == "mine.zip"


@pytest.mark.parametrize("question", ["", "?download=1", "?a=b/c#d"])
def test_an_address_may_ask_for_something(server, tmp_path, question):
    server.answers["/x/mine.zip" + question.split("#")[0]] = pack(tmp_path / "mine.zip").read_bytes()
    fetched = fetch(user_dataset("mine", "folder"), tmp_path / "raw", f"{server.url}/x/mine.zip{question}")
    assert (fetched.path / "a" / "1.txt").read_text() == "one"


@pytest.mark.parametrize("remote", [False, True])
def test_official_files_may_lie_in_an_archive(server, one_file, tmp_path, remote):
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.writestr("top/one.gz", ARCHIVE)
    server.answers["/all.zip"] = (tmp_path / "all.zip").read_bytes()
    source = f"{server.url}/all.zip" if remote else str(tmp_path / "all.zip")
    fetched = fetch(one_file, tmp_path / "raw", source)
    assert (fetched.path / "one.gz").read_bytes() == ARCHIVE
    with zipfile.ZipFile(tmp_path / "bad.zip", "w") as archive:
        archive.writestr("one.gz", ARCHIVE[:-20])
    with pytest.raises(UserError, match="truncated"):
        fetch(one_file, tmp_path / "other", str(tmp_path / "bad.zip"))
    assert not (tmp_path / "other" / "one.gz").exists()


def two_forms(folder):
    """Return a data set with two alternative archives, both in `folder`."""
    folder.mkdir()
    first, second = pack(folder / "first.zip"), folder / "second.zip"
    with zipfile.ZipFile(second, "w") as archive:
        archive.writestr("top/other.txt", "other")
    digests = [hashlib.md5(path.read_bytes()).hexdigest() for path in (first, second)]
    return DatasetSpec(
        "two",
        "folder",
        files=(SourceFile("first.zip", md5=digests[0]),),
        instead=SourceFile("second.zip", md5=digests[1]),
    )


@pytest.mark.parametrize("source", ["folder", "archive", "raw", "url"])
def test_the_other_official_form_serves_where_only_it_lies(server, tmp_path, source):
    dataset = two_forms(tmp_path / "in")
    first = fetch(dataset, tmp_path / "both", str(tmp_path / "in"))
    assert first.files[0]["name"] == "first.zip"
    (tmp_path / "in" / "first.zip").unlink()
    server.answers["/second.zip"] = (tmp_path / "in" / "second.zip").read_bytes()
    places = {
        "folder": str(tmp_path / "in"),
        "archive": str(tmp_path / "in" / "second.zip"),
        "url": f"{server.url}/second.zip",
    }
    raw = tmp_path / "in" if source == "raw" else tmp_path / "raw"
    fetched = fetch(dataset, raw, places.get(source))
    assert (fetched.path / "other.txt").read_text() == "other"
    assert fetched.files[0]["name"] == "second.zip"
    damaged = bytearray(server.answers["/second.zip"])
    damaged[5] ^= 1
    (tmp_path / "in" / "second.zip").write_bytes(damaged)
    with pytest.raises(UserError, match=r"second\.zip: not the official second\.zip"):
        fetch(dataset, tmp_path / "new", str(tmp_path / "in"))


@pytest.mark.processes
@pytest.mark.parametrize("text", ["{}", "[]", "x", '{"name": 3}'])
def test_a_reader_that_is_none_is_a_sentence(tmp_path, text):
    command = [
        sys.executable,
        "scripts/fetch.py",
        "--dataset",
        "mine",
        "--target",
        str(tmp_path),
        "--reader",
        text,
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert "argument --reader" in done.stderr
    assert "Traceback" not in done.stderr


def test_two_fetches_do_not_meet(tmp_path, monkeypatch):
    raw, source = tmp_path / "raw", str(pack(tmp_path / "mine.zip"))
    raw.mkdir()
    with (raw / ".lock").open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        # The first pause between two attempts to lock ends the other fetch.
        monkeypatch.setattr(file_lock.time, "sleep", lambda _: fcntl.flock(other, fcntl.LOCK_UN))
        fetch(user_dataset("mine", "folder"), raw, source)
    assert names(raw) == ["fetched.json", "files"]


def test_a_fetch_does_not_wait_forever(tmp_path, monkeypatch):
    monkeypatch.setattr(fetching, "LOCK_TIMEOUT_SECONDS", 0.0)
    (tmp_path / "raw").mkdir()
    with (tmp_path / "raw" / ".lock").open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(
            UserError, match=r"another process is fetching into .*; wait until it has finished"
        ):
            fetch(user_dataset("mine", "folder"), tmp_path / "raw", str(pack(tmp_path / "mine.zip")))


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
def test_own_data_that_are_not_there(tmp_path, name, source, message):
    dataset = find_dataset(name) if name == "imagenet" else user_dataset(name, "folder")
    with pytest.raises(UserError, match=message):
        fetch(dataset, tmp_path / "raw", source)
    assert names(tmp_path / "raw") == []


@pytest.mark.parametrize("text", ["", "[]", '{"dataset": "x"}', "\xff"])
def test_damaged_record_is_named(tmp_path, text):
    (tmp_path / "fetched.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(UserError, match=r"fetched\.json: damaged"):
        FetchRecord.load(tmp_path)


@pytest.mark.processes
def test_fetching_stays_light():
    """The module that `scripts/fetch.py` imports loads no heavy package."""
    heavy = {"numpy", "pooch", "requests", "h5py", "pandas", "pydantic", "sklearn", "torch"}
    code = f"import sys, {fetching.__name__}; print(*{heavy!r}.intersection(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
