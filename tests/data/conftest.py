"""Fixtures of the data tests: small stores, and a web server that sends prepared faulty answers."""

import hashlib
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from helpers.conversions import conversion_for

from nnlo_lib.data.catalog import DIGITS, DatasetSpec, SourceFile
from nnlo_lib.data.fetch.fetch import fetch
from nnlo_lib.data.store.convert import convert
from nnlo_lib.data.store.manifest import DataManifest


@pytest.fixture(scope="session")
def digits_raw(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("digits") / "raw"
    fetch(DIGITS, folder)
    return folder


@pytest.fixture(scope="session", params=["hdf5", "npz"])
def digits(request, digits_raw) -> DataManifest:
    """Return the digits as four shards of training images and one of test images, in one of the formats."""
    return convert(conversion_for(DIGITS, digits_raw, digits_raw.parent / request.param, request.param, 400))


class Server:
    """Serve the prepared answers by HTTP and count the requests for each path.

    Attributes:
        answers: response by path: a body, an HTTP status, or ("truncated", body) to send only half of the body.
    """

    def __init__(self) -> None:
        self.answers: dict[str, bytes | int | tuple[str, bytes]] = {}
        self.requests: Counter[str] = Counter()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.requests[self.path] += 1
                answer = server.answers.get(self.path, 404)
                if isinstance(answer, int):
                    return self.send_error(answer)
                body = answer[1] if isinstance(answer, tuple) else answer
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body[: len(body) // 2] if isinstance(answer, tuple) else body)
                return None

            def log_message(self, *args: object) -> None:
                """Print no line per request, to keep the test's output clean."""

        return Handler


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    server = Server()
    yield server
    server.close()


@pytest.fixture
def one_file() -> DatasetSpec:
    """Return a data set of the single file `one.gz`, which holds 400 times the bytes 0..255."""
    file = SourceFile("one.gz", hashlib.sha256(bytes(range(256)) * 400).hexdigest())
    return DatasetSpec("one", "idx", files=(file,))
