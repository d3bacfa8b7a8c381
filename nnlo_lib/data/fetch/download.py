"""Download one file over HTTP: mirrors in turn, bounded patience, going on where an earlier download broke off."""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from nnlo_lib.core.errors import UserError
from nnlo_lib.core.file_lock import exclusive_lock

if TYPE_CHECKING:
    from typing import NoReturn

    from requests import Response
    from tqdm import tqdm

ATTEMPTS = 3
PAUSE_SECONDS = 0.5
CONNECT_SECONDS = 3.0
READ_SECONDS = 15.0
LOG_SECONDS = 10.0  # between two lines of progress where there is no terminal
CHUNK_BYTES = 1 << 16


class _FailedError(Exception):
    """Why one attempt failed, and whether the same address deserves another."""

    def __init__(self, reason: str, again: bool) -> None:
        super().__init__(reason)
        self.is_retryable = again


def download(urls: Sequence[str], target: Path, check: Callable[[Path, str], None]) -> None:
    """Write to `target` what the first good one of `urls` delivers; `check(path, url)` raises UserError if bad.

    Each address gets up to three attempts, but only one if it is slow to connect or says that it has no such
    file, so that a machine without network learns it in seconds. What has come stays in a hidden `.part` beside
    `target`, and the next attempt, or the next process, asks the same address for the rest. Raises UserError with the
    reason of each.
    """
    try:
        with _partial(target) as part:
            _try_in_turn(urls, part, check)
            part.replace(target)
    except OSError as error:
        raise UserError(f"cannot write {target}: {error.strerror or error}") from error


def _try_in_turn(urls: Sequence[str], part: Path, check: Callable[[Path, str], None]) -> None:
    waiting, reasons = list(urls), dict[str, str]()
    for attempt in range(ATTEMPTS):
        time.sleep(PAUSE_SECONDS * attempt if waiting else 0)
        for url in tuple(waiting):
            try:
                _get(url, part)
                return _accept(url, part, check)
            except UserError as error:
                reasons[url] = str(error)
            except _FailedError as error:
                reasons[url] = f"{url}: {error}"
                if not error.is_retryable:
                    waiting.remove(url)
    raise UserError("\n  ".join(reasons.values()))


def _accept(url: str, part: Path, check: Callable[[Path, str], None]) -> None:
    """Check what has come; what is wrong is not gone on with."""
    try:
        check(part, url)
    except UserError:
        os.truncate(part, 0)
        raise
    with part.open("rb+") as file:
        os.fsync(file.fileno())


@contextmanager
def _partial(target: Path) -> Iterator[Path]:
    """Give the partial file, which nobody else may write meanwhile, and which says of what it is a part."""
    part = target.with_name(f".{target.name}.part")
    with exclusive_lock(part, f"downloading {target}"):
        try:
            yield part
        finally:
            if not (part.exists() and part.stat().st_size):
                _resume_info_path(part).unlink(missing_ok=True)


def _resume_info_path(part: Path) -> Path:
    """Where it stands which version of which address the partial file is of."""
    return part.with_suffix(".json")


def _get(url: str, part: Path) -> None:
    """Bring the file, or the rest of it, into `part`."""
    import requests

    version = _version_begun(url, part)
    have = part.stat().st_size if version else 0
    headers = {"Accept-Encoding": "identity"}
    if have and version:
        headers |= {"Range": f"bytes={have}-", "If-Range": version}
    started = time.monotonic()
    try:
        with requests.get(
            url, headers=headers, stream=True, timeout=(CONNECT_SECONDS, READ_SECONDS)
        ) as response:
            response.raise_for_status()
            _receive(response, url, part, _start(response, part, have))
    except requests.HTTPError as error:
        status = error.response.status_code
        if status == requests.codes.requested_range_not_satisfiable:
            _resume_info_path(part).unlink(missing_ok=True)
        raise _FailedError(
            f"HTTP status {status}", again=status >= 500 or status in (408, 416, 429)
        ) from error
    except requests.RequestException as error:
        slow = time.monotonic() - started > CONNECT_SECONDS
        hopeless = isinstance(error, ValueError) or (isinstance(error, requests.ConnectionError) and slow)
        raise _FailedError(_reason(error), again=not hopeless) from error


def _start(response: "Response", part: Path, have: int) -> int:
    """Tell which byte of the file the answer begins with."""
    if response.status_code != 206:
        return 0
    if not response.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
        _resume_info_path(part).unlink(missing_ok=True)
        raise _FailedError("the server sent another part than it was asked for", again=True)
    return have


def _receive(response: "Response", url: str, part: Path, start: int) -> None:
    version = response.headers.get("ETag", response.headers.get("Last-Modified", ""))
    with part.open("rb+") as file, _bar(response, part.name[1:-5], start) as bar:
        file.truncate(start)  # before the note: it must never speak of what is not there
        _resume_info_path(part).write_text(
            json.dumps({"url": url, "version": "" if version.startswith("W/") else version})
        )
        file.seek(start)
        for chunk in response.iter_content(CHUNK_BYTES):
            if bar.update(file.write(chunk)) and not sys.stderr.isatty():
                print(file=sys.stderr)  # in a log each state has its own line


def _bar(response: "Response", name: str, start: int) -> "tqdm[NoReturn]":
    """Show progress at once on a terminal, every ten seconds in a log."""
    from tqdm import tqdm

    pause = 0.1 if sys.stderr.isatty() else LOG_SECONDS
    length = response.headers.get("Content-Length", "")
    return tqdm(
        total=start + int(length) if length.isdecimal() else None, initial=start, unit="B", unit_scale=True,
        leave=False, desc=name, delay=pause, mininterval=pause, maxinterval=pause,
    )  # fmt: skip


def _version_begun(url: str, part: Path) -> str | None:
    """Return the validator of the version of `url` that the partial file is the beginning of."""
    try:
        note = json.loads(_resume_info_path(part).read_text())
        return str(note["version"]) or None if note["url"] == url else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _reason(error: Exception) -> str:
    """Say in a few words what requests says in many."""
    from requests import exceptions as known

    reasons: dict[type[Exception], str] = {
        known.ConnectTimeout: f"no answer within {CONNECT_SECONDS:g} s",
        known.ReadTimeout: f"silent for {READ_SECONDS:g} s",
        known.SSLError: "its certificate is not trusted here",
        known.ProxyError: "the proxy refused",
        known.ConnectionError: "no connection",
        known.ChunkedEncodingError: "the transfer broke off",
    }
    return next((text for kind, text in reasons.items() if isinstance(error, kind)), str(error))
