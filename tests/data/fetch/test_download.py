import fcntl
import gzip
import json
import os
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from nnlo_lib.core.errors import UserError
from nnlo_lib.core.file_lock import exclusive_lock
from nnlo_lib.data.catalog import MNIST
from nnlo_lib.data.fetch import download
from nnlo_lib.data.fetch.fetch import fetch

CONTENT = bytes(range(256)) * 400
ARCHIVE = gzip.compress(CONTENT, mtime=0)
# The body need not exceed the socket buffers, because the server sends only half of it while on hold.
BODY = CONTENT * 40


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(download, "PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(download, "CHUNK_BYTES", 64)


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return listening.getsockname()[1]


@pytest.mark.long
def test_mnist_over_http(shared_data, server, tmp_path):
    for file in MNIST.files:
        server.answers[f"/mnist/{file.name}"] = (shared_data / "mnist" / file.name).read_bytes()
    fetched = fetch(MNIST, tmp_path, f"{server.url}/mnist/")
    names = [file.name for file in MNIST.files]
    assert [file["name"] for file in fetched.files] == names
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*names, "fetched.json"])
    assert all((tmp_path / name).read_bytes() == server.answers[f"/mnist/{name}"] for name in names)


def test_second_mirror_helps_out(server, one_file, tmp_path):
    server.answers = {"/first/one.gz": 404, "/second/one.gz": ARCHIVE}
    dataset = replace(one_file, mirrors=(f"{server.url}/first/", f"{server.url}/second/"))
    fetch(dataset, tmp_path)
    assert (tmp_path / "one.gz").read_bytes() == ARCHIVE
    assert server.requests == {"/first/one.gz": 1, "/second/one.gz": 1}


@pytest.mark.parametrize(
    ("answer", "attempts", "message"),
    [
        (("truncated", ARCHIVE), 3, "the transfer was interrupted"),
        (ARCHIVE[:-100], 3, "truncated"),
        (CONTENT[1:], 3, "not the official one.gz"),
        (404, 1, "HTTP status 404"),
        (503, 3, "HTTP status 503"),
    ],
)
def test_bad_answers_leave_nothing(server, one_file, tmp_path, answer, attempts, message):
    server.answers["/one.gz"] = answer
    with pytest.raises(UserError, match=message) as error:
        fetch(one_file, tmp_path / "raw", server.url)
    assert f"{server.url}/one.gz" in str(error.value)
    assert ".part" not in str(error.value)
    assert server.requests["/one.gz"] == attempts
    left = [path.name for path in Path(tmp_path / "raw").iterdir()]
    assert sorted(left) == ([".one.gz.json", ".one.gz.part"] if isinstance(answer, tuple) else [])


def test_retry_succeeds_after_a_broken_transfer(server, one_file, tmp_path, monkeypatch):
    server.answers["/one.gz"] = ("truncated", ARCHIVE)

    def mend(seconds: float) -> None:
        if server.requests:
            server.answers["/one.gz"] = ARCHIVE

    monkeypatch.setattr(download.time, "sleep", mend)
    fetch(one_file, tmp_path, server.url)
    assert (tmp_path / "one.gz").read_bytes() == ARCHIVE
    assert server.requests["/one.gz"] == 2


def test_a_broken_download_goes_on_where_it_broke_off(server, one_file, tmp_path):
    server.answers["/one.gz"], server.etag = ("truncated", ARCHIVE), '"v1"'
    with pytest.raises(UserError, match="the transfer was interrupted"):
        fetch(one_file, tmp_path, server.url)
    came = (tmp_path / ".one.gz.part").stat().st_size
    assert 0 < came < len(ARCHIVE)
    server.answers["/one.gz"], server.ranges = ARCHIVE, []
    # A second fetch stands for another process that resumes the download later.
    fetch(one_file, tmp_path, server.url)
    assert (tmp_path / "one.gz").read_bytes() == ARCHIVE
    assert server.ranges == [f"bytes={came}-"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fetched.json", "one.gz"]


@pytest.mark.parametrize("etag", ["", '"v2"', 'W/"v1"'])
def test_a_file_that_changed_meanwhile_is_not_pieced_together(server, one_file, tmp_path, etag):
    server.answers["/one.gz"], server.etag = ("truncated", bytes(1000)), '"v1"' if etag == '"v2"' else etag
    with pytest.raises(UserError, match="the transfer was interrupted"):
        fetch(one_file, tmp_path, server.url)
    server.answers["/one.gz"], server.etag = ARCHIVE, etag
    fetch(one_file, tmp_path, server.url)
    assert (tmp_path / "one.gz").read_bytes() == ARCHIVE


def test_a_wrong_beginning_is_thrown_away(server, one_file, tmp_path):
    """A partial file that does not match the rest fails the checksum; the next attempt downloads all bytes."""
    server.answers["/one.gz"], server.etag = ARCHIVE, '"v1"'
    (tmp_path / ".one.gz.part").write_bytes(b"x" * 50)
    (tmp_path / ".one.gz.json").write_text(json.dumps({"url": f"{server.url}/one.gz", "version": '"v1"'}))
    fetch(one_file, tmp_path, server.url)
    assert (tmp_path / "one.gz").read_bytes() == ARCHIVE
    assert server.ranges == ["bytes=50-", None]


@pytest.mark.parametrize("shift", [-7, 7])
def test_a_part_that_was_not_asked_for_is_not_taken(server, tmp_path, shift):
    """A response with the wrong range is discarded; for a user's own file no checksum would detect it."""
    server.answers["/x"], server.etag = ("truncated", ARCHIVE), '"v1"'
    with pytest.raises(UserError, match="the transfer was interrupted"):
        download.download([f"{server.url}/x"], tmp_path / "x", lambda *_: None)
    server.answers["/x"], server.shift = ARCHIVE, shift
    download.download([f"{server.url}/x"], tmp_path / "x", lambda *_: None)
    assert (tmp_path / "x").read_bytes() == ARCHIVE


def test_a_download_that_was_complete_but_for_its_name(server, tmp_path):
    server.answers["/x"], server.etag = ARCHIVE, '"v1"'
    (tmp_path / ".x.part").write_bytes(ARCHIVE)
    (tmp_path / ".x.json").write_text(json.dumps({"url": f"{server.url}/x", "version": '"v1"'}))
    download.download([f"{server.url}/x"], tmp_path / "x", lambda *_: None)
    assert (tmp_path / "x").read_bytes() == ARCHIVE


@pytest.mark.parametrize("length", ["many", "1e3"])
def test_a_length_that_is_no_number_does_not_matter(server, tmp_path, length):
    server.answers["/x"], server.length = ARCHIVE, length
    download.download([f"{server.url}/x"], tmp_path / "x", lambda *_: None)
    assert (tmp_path / "x").read_bytes() == ARCHIVE


FETCH = """
import sys
from pathlib import Path
from nnlo_lib.data.fetch import download
download.CHUNK_BYTES = 64
download.download([sys.argv[1]], Path(sys.argv[2]), lambda *_: None)
"""


def start(server, target):
    return subprocess.Popen(
        [sys.executable, "-c", FETCH, f"{server.url}/x", str(target)], stderr=subprocess.PIPE, text=True
    )


def reaches(path, size):
    """Wait until the file has at least `size` bytes."""
    until = time.monotonic() + 20
    while not (path.exists() and path.stat().st_size >= size):
        assert time.monotonic() < until
        os.sched_yield()


@pytest.mark.processes
def test_a_killed_download_goes_on(server, tmp_path):
    server.answers["/x"], server.etag = BODY, '"v1"'
    server.hold.clear()
    process = start(server, tmp_path / "x")
    reaches(tmp_path / ".x.part", len(BODY) // 4)
    process.kill()
    process.communicate()
    server.hold.set()
    came = (tmp_path / ".x.part").stat().st_size
    assert 0 < came < len(BODY)
    again = start(server, tmp_path / "x")
    assert again.communicate()[1] == ""
    assert again.returncode == 0
    assert (tmp_path / "x").read_bytes() == BODY
    assert server.ranges == [None, f"bytes={came}-"]
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


@pytest.mark.processes
def test_of_two_processes_one_downloads_and_one_says_so(server, tmp_path):
    server.answers["/x"] = BODY
    server.hold.clear()
    first = start(server, tmp_path / "x")
    reaches(tmp_path / ".x.part", len(BODY) // 4)
    second = start(server, tmp_path / "x")
    assert "another process is downloading" in second.communicate()[1]
    server.hold.set()
    assert first.communicate()[1] == ""
    assert (tmp_path / "x").read_bytes() == BODY
    assert server.requests["/x"] == 1


def test_the_lock_of_a_file_that_was_renamed_is_not_a_lock(tmp_path, monkeypatch):
    """The other process finishes between opening and locking, so the lock is on its renamed, finished file."""
    path = tmp_path / "part"

    def finish_first(*_):
        path.rename(tmp_path / "finished")

    monkeypatch.setattr(fcntl, "flock", finish_first)
    with (
        pytest.raises(UserError, match="another process has just stopped writing"),
        exclusive_lock(path, "writing"),
    ):
        pytest.fail("not alone")
    assert (tmp_path / "finished").exists()


def test_a_log_gets_lines_of_progress(server, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(download, "LOG_SECONDS", 1e-9)
    server.answers["/x"] = ARCHIVE
    download.download([f"{server.url}/x"], tmp_path / "x", lambda *_: None)
    lines = capfd.readouterr().err.strip().split("\n")
    assert len(lines) > 3
    assert "x:" in lines[0]


def test_a_short_download_says_nothing(server, tmp_path, capfd):
    server.answers["/x"] = ARCHIVE
    download.download([f"{server.url}/x"], tmp_path / "x", lambda *_: None)
    assert capfd.readouterr().err == ""


def test_two_processes_do_not_download_one_file(server, one_file, tmp_path):
    with (tmp_path / ".one.gz.part").open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(UserError, match=r"another process is downloading .*one\.gz"):
            fetch(one_file, tmp_path, server.url)


def test_no_network_says_what_to_do_in_seconds(tmp_path, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    address = f"http://127.0.0.1:{closed_port()}/"
    started = time.monotonic()
    with pytest.raises(UserError) as error:
        fetch(replace(MNIST, mirrors=(address, address + "b/")), tmp_path / "raw")
    assert time.monotonic() - started < 30
    for word in (
        *(file.name for file in MNIST.files),
        "data.source",
        str(tmp_path / "raw"),
        "connection failed",
    ):
        assert word in str(error.value)


def test_silent_host_is_asked_once(tmp_path, one_file, monkeypatch):
    """Only one connection is tried; a listener with a full queue drops the handshake, as a firewall does."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(download, "CONNECT_SECONDS", 0.3)
    with (
        socket.create_server(("127.0.0.1", 0), backlog=0) as deaf,
        socket.socket() as a,
        socket.socket() as b,
    ):
        for filler in (a, b):
            filler.setblocking(False)
            filler.connect_ex(deaf.getsockname())
        started = time.monotonic()
        with pytest.raises(UserError, match=r"connecting timed out after 0.3 s"):
            fetch(one_file, tmp_path, f"http://127.0.0.1:{deaf.getsockname()[1]}")
        assert time.monotonic() - started < 20


@pytest.mark.parametrize("source", ["ftp://127.0.0.1/x", "http://", "file:///x"])
def test_address_that_is_none(one_file, tmp_path, source):
    with pytest.raises(UserError, match=r"data\.source"):
        fetch(one_file, tmp_path, source)
