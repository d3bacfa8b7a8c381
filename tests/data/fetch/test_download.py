"""Downloads: mirrors, retries, resumption, and sentences for networks that fail; a web server of this process."""

import fcntl
import gzip
import json
import socket
from dataclasses import replace

import pytest

from nnlo_lib.core.errors import UserError
from nnlo_lib.core.file_lock import exclusive_lock
from nnlo_lib.data.catalog import MNIST
from nnlo_lib.data.fetch import download
from nnlo_lib.data.fetch.fetch import fetch

CONTENT = bytes(range(256)) * 400
ARCHIVE = gzip.compress(CONTENT, mtime=0)


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(download, "PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(download, "CHUNK_BYTES", 64)


def get(server, folder):
    """Download /x, without a check of its content."""
    download.download([f"{server.url}/x"], folder / "x", lambda *_: None)


def begin(folder, server, content, name="x"):
    """Leave `content` as an earlier process that was killed while it downloaded."""
    (folder / f".{name}.part").write_bytes(content)
    (folder / f".{name}.json").write_text(json.dumps({"url": f"{server.url}/{name}", "version": '"v1"'}))


def test_mnist_over_http(shared_data, server, tmp_path, monkeypatch):
    monkeypatch.setattr(download, "CHUNK_BYTES", 1 << 16)
    for file in MNIST.files:
        server.answers[f"/mnist/{file.name}"] = (shared_data / "mnist" / file.name).read_bytes()
    fetched = fetch(MNIST, tmp_path, f"{server.url}/mnist/")
    names = [file.name for file in MNIST.files]
    assert [file["name"] for file in fetched.files] == names
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*names, "fetched.json"])
    assert all((tmp_path / name).read_bytes() == server.answers[f"/mnist/{name}"] for name in names)


def test_the_second_mirror_is_used_if_the_first_has_no_file(server, one_file, tmp_path):
    server.answers = {"/first/one.gz": 404, "/second/one.gz": ARCHIVE}
    fetch(replace(one_file, mirrors=(f"{server.url}/first/", f"{server.url}/second/")), tmp_path)
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
def test_bad_answers_are_named_and_leave_no_file(server, one_file, tmp_path, answer, attempts, message):
    server.answers["/one.gz"] = answer
    with pytest.raises(UserError, match=message) as error:
        fetch(one_file, tmp_path / "raw", server.url)
    assert f"{server.url}/one.gz" in str(error.value)
    assert ".part" not in str(error.value)
    assert server.requests["/one.gz"] == attempts
    left = sorted(path.name for path in (tmp_path / "raw").iterdir())
    assert left == ([".one.gz.json", ".one.gz.part"] if isinstance(answer, tuple) else [])


def test_a_broken_download_continues_where_it_broke_off(server, one_file, tmp_path):
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
def test_parts_of_two_versions_of_a_file_are_not_joined(server, one_file, tmp_path, etag):
    server.answers["/one.gz"], server.etag = ("truncated", bytes(1000)), '"v1"' if etag == '"v2"' else etag
    with pytest.raises(UserError, match="the transfer was interrupted"):
        fetch(one_file, tmp_path, server.url)
    server.answers["/one.gz"], server.etag = ARCHIVE, etag
    fetch(one_file, tmp_path, server.url)
    assert (tmp_path / "one.gz").read_bytes() == ARCHIVE


def test_a_part_with_other_bytes_is_discarded_after_the_checksum_fails(server, one_file, tmp_path):
    server.answers["/one.gz"], server.etag = ARCHIVE, '"v1"'
    begin(tmp_path, server, b"x" * 50, "one.gz")
    fetch(one_file, tmp_path, server.url)
    assert (tmp_path / "one.gz").read_bytes() == ARCHIVE
    assert server.ranges == ["bytes=50-", None]


@pytest.mark.parametrize(("length", "shift"), [(100, -7), (100, 7), (len(ARCHIVE), 0)])
def test_a_part_is_completed_but_not_by_a_range_that_was_not_requested(server, tmp_path, length, shift):
    """For a user's own file, no checksum would detect the wrong range."""
    server.answers["/x"], server.etag, server.shift = ARCHIVE, '"v1"', shift
    begin(tmp_path, server, ARCHIVE[:length])
    get(server, tmp_path)
    assert (tmp_path / "x").read_bytes() == ARCHIVE


def test_a_lock_on_a_file_that_was_renamed_in_the_meantime_is_no_lock(tmp_path, monkeypatch):
    """The other process finishes between opening and locking, so the lock is on its renamed, finished file."""
    path = tmp_path / "part"
    monkeypatch.setattr(fcntl, "flock", lambda *_: path.rename(tmp_path / "finished"))
    stopped = pytest.raises(UserError, match="another process has just stopped writing")
    with stopped, exclusive_lock(path, "writing"):
        pytest.fail("not alone")
    assert (tmp_path / "finished").exists()


@pytest.mark.parametrize(("interval_s", "lines"), [(1e-9, range(4, 1000)), (1e9, range(1))])
def test_a_log_has_lines_of_progress_of_a_long_download(
    server, tmp_path, monkeypatch, capfd, interval_s, lines
):
    monkeypatch.setattr(download, "LOG_SECONDS", interval_s)
    server.answers["/x"] = ARCHIVE
    get(server, tmp_path)
    found = capfd.readouterr().err.split("\n")[:-1]
    assert len(found) in lines
    assert not found or "x:" in found[0]


def test_two_processes_do_not_download_one_file(server, one_file, tmp_path):
    with (tmp_path / ".one.gz.part").open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(UserError, match=r"another process is downloading .*one\.gz"):
            fetch(one_file, tmp_path, server.url)


def test_without_a_network_the_message_has_the_files_and_the_key(tmp_path, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with socket.socket() as closed:  # bound, so that no other process gets the port, but not listening
        closed.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{closed.getsockname()[1]}/"
        with pytest.raises(UserError) as error:
            fetch(replace(MNIST, mirrors=(address, address + "b/")), tmp_path / "raw")
    names = [file.name for file in MNIST.files]
    for word in (*names, "data.source", str(tmp_path / "raw"), "connection failed"):
        assert word in str(error.value)


def test_a_silent_host_is_asked_once(tmp_path, one_file, monkeypatch):
    """A listener with a full queue drops the handshake, as a firewall does."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(download, "CONNECT_SECONDS", 0.3)
    asked, get_once = [], download._get
    monkeypatch.setattr(download, "_get", lambda *given: asked.append(given) or get_once(*given))
    full = socket.create_server(("127.0.0.1", 0), backlog=0)
    with full as deaf, socket.socket() as a, socket.socket() as b:
        for filler in (a, b):
            filler.setblocking(False)
            filler.connect_ex(deaf.getsockname())
        with pytest.raises(UserError, match=r"connecting timed out after 0.3 s"):
            fetch(one_file, tmp_path, f"http://127.0.0.1:{deaf.getsockname()[1]}")
    assert len(asked) == 1


@pytest.mark.parametrize("source", ["ftp://127.0.0.1/x", "http://", "file:///x"])
def test_an_address_that_is_none_is_refused(one_file, tmp_path, source):
    with pytest.raises(UserError, match=r"data\.source"):
        fetch(one_file, tmp_path, source)
