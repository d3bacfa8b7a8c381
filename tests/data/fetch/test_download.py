"""Downloads: mirrors, retries, and sentences for networks that fail; a web server of this process."""

import gzip
import socket
from dataclasses import replace

import pytest

from nnlo_lib.core.errors import UserError
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
    assert list((tmp_path / "raw").iterdir()) == []


def test_a_download_starts_again_after_its_process_was_killed(server, one_file, tmp_path):
    (tmp_path / ".one.gz.0123456789abcdef.part").write_bytes(b"x" * 50)
    server.answers["/one.gz"] = ARCHIVE
    fetch(one_file, tmp_path, server.url)
    assert (tmp_path / "one.gz").read_bytes() == ARCHIVE
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fetched.json", "one.gz"]


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
