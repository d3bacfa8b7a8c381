import gzip
import socket
import time
from dataclasses import replace
from pathlib import Path

import pytest

from nnlo_lib.data import download
from nnlo_lib.data.catalog import MNIST
from nnlo_lib.data.fetch import fetch
from nnlo_lib.errors import UserError

CONTENT = bytes(range(256)) * 400
ARCHIVE = gzip.compress(CONTENT, mtime=0)


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(download, "PAUSE_SECONDS", 0.01)


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return listening.getsockname()[1]


def test_mnist_over_http(shared_data, server, tmp_path):
    for file in MNIST.files:
        server.answers[f"/mnist/{file.name}"] = (shared_data / "mnist" / file.name).read_bytes()
    paths = fetch(MNIST, tmp_path, f"{server.url}/mnist/")
    assert sorted(paths) == sorted(tmp_path.iterdir())
    assert all(path.read_bytes() == server.answers[f"/mnist/{path.name}"] for path in paths)


def test_second_mirror_helps_out(server, one_file, tmp_path):
    server.answers = {"/first/one.gz": 404, "/second/one.gz": ARCHIVE}
    dataset = replace(one_file, mirrors=(f"{server.url}/first/", f"{server.url}/second/"))
    (path,) = fetch(dataset, tmp_path)
    assert path.read_bytes() == ARCHIVE
    assert server.requests == {"/first/one.gz": 1, "/second/one.gz": 1}


@pytest.mark.parametrize(
    ("answer", "attempts", "message"),
    [
        (("truncated", ARCHIVE), 3, "the transfer broke off"),
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
    assert list(Path(tmp_path / "raw").iterdir()) == []


def test_retry_succeeds_after_a_broken_transfer(server, one_file, tmp_path, monkeypatch):
    server.answers["/one.gz"] = ("truncated", ARCHIVE)

    def mend(seconds: float) -> None:
        if server.requests:
            server.answers["/one.gz"] = ARCHIVE

    monkeypatch.setattr(download.time, "sleep", mend)
    (path,) = fetch(one_file, tmp_path, server.url)
    assert path.read_bytes() == ARCHIVE
    assert server.requests["/one.gz"] == 2


def test_no_network_says_what_to_do_in_seconds(tmp_path, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    address = f"http://127.0.0.1:{closed_port()}/"
    started = time.monotonic()
    with pytest.raises(UserError) as error:
        fetch(replace(MNIST, mirrors=(address, address + "b/")), tmp_path / "raw")
    assert time.monotonic() - started < 5
    for word in (*(file.name for file in MNIST.files), "data.source", str(tmp_path / "raw"), "no connection"):
        assert word in str(error.value)


def test_silent_host_is_asked_once(tmp_path, one_file, monkeypatch):
    """A listener whose queue is full drops the handshake, like a firewall does."""
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
        with pytest.raises(UserError, match=r"no answer within 0.3 s"):
            fetch(one_file, tmp_path, f"http://127.0.0.1:{deaf.getsockname()[1]}")
        assert time.monotonic() - started < 3


@pytest.mark.parametrize("source", ["ftp://127.0.0.1/x", "http://", "file:///x"])
def test_address_that_is_none(one_file, tmp_path, source):
    with pytest.raises(UserError, match=r"data\.source"):
        fetch(one_file, tmp_path, source)
