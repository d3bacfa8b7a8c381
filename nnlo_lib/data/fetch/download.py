"""Download of one file over HTTP, with mirrors, bounded retries and resumption of partial downloads.

pooch 1.9 deletes a partial file after each failure, so that an interrupted download of ImageNet would begin at byte 0.
It has one address for each file, tries permanent errors again, and checks the compressed file instead of its content.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from nnlo_lib.core.atomic_file import load_json
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.file_access import cause_of
from nnlo_lib.core.file_lock import exclusive_lock
from nnlo_lib.core.logging_setup import write_stderr
from nnlo_lib.core.secrets import mask, resolve, unresolve

if TYPE_CHECKING:
    from typing import NoReturn

    from requests import Response
    from tqdm import tqdm

ATTEMPTS = 3
PAUSE_SECONDS = 0.5
CONNECT_SECONDS = 3.0
READ_SECONDS = 15.0
LOG_SECONDS = 10.0  # interval of progress lines if stderr is not a terminal
CHUNK_BYTES = 1 << 16


class _FailedError(Exception):
    """Reason why one attempt failed; `is_retryable` if another attempt at the same address may succeed."""

    def __init__(self, reason: str, again: bool) -> None:
        super().__init__(reason)
        self.is_retryable = again


def download(urls: Sequence[str], target: Path, check: Callable[[Path, str], None]) -> None:
    """Download the file from the first of `urls` that delivers a file accepted by `check`.

    Each address gets up to ATTEMPTS attempts, but only one if connecting takes longer than CONNECT_SECONDS or
    if the server responds with a permanent error such as HTTP 404. A machine without network therefore fails
    within seconds. Received bytes stay in a hidden `.part` file beside `target`; the next attempt or the next
    process requests only the rest from the same address.

    Args:
        check: called with the partial file's path and the URL before the file is renamed; raises UserError if
            the file is not the expected one.
    Raises:
        UserError: with the reason for each address if all fail; if another process is downloading `target`;
            if `target` cannot be written.
    """
    try:
        with _partial(target) as part:
            _try_in_turn(urls, part, check)
            part.replace(target)
    except OSError as error:
        raise UserError(f"cannot write {target}: {cause_of(error, target)}") from error


def _try_in_turn(urls: Sequence[str], part: Path, check: Callable[[Path, str], None]) -> None:
    waiting, reasons = list(urls), dict[str, str]()
    for attempt in range(ATTEMPTS):
        time.sleep(PAUSE_SECONDS * attempt if waiting else 0)
        for url in tuple(waiting):
            try:
                _get(url, part)
                return _accept(url, part, check)
            except UserError as error:
                # The address stays in `waiting`: the content can be wrong because the partial file was.
                reasons[url] = str(error)
            except _FailedError as error:
                reasons[url] = f"{url}: {error}"
                if not error.is_retryable:
                    waiting.remove(url)
    raise UserError("\n  ".join(reasons.values()))


def _accept(url: str, part: Path, check: Callable[[Path, str], None]) -> None:
    """Check the downloaded file. Truncate it if the check fails, so that no later attempt resumes from it."""
    try:
        check(part, url)
    except UserError:
        os.truncate(part, 0)
        raise
    # The content must be on disk before `download` gives the file its final name.
    with part.open("rb+") as file:
        os.fsync(file.fileno())


@contextmanager
def _partial(target: Path) -> Iterator[Path]:
    """Yield the path of the partial file, locked against other processes.

    If the file is empty or absent at the end, its resume information is removed.
    """
    part = target.with_name(f".{target.name}.part")
    with exclusive_lock(part, f"downloading {target}"):
        try:
            yield part
        finally:
            if not (part.exists() and part.stat().st_size):
                _resume_info_path(part).unlink(missing_ok=True)


def _resume_info_path(part: Path) -> Path:
    """Return the path of the JSON file with the URL and the version (validator) of the partial file."""
    return part.with_suffix(".json")


def _get(url: str, part: Path) -> None:
    """Download the file, or the missing rest of it, into `part`."""
    import requests

    version, address = _version_begun(url, part), resolve(url, "data.source")
    have = part.stat().st_size if version else 0
    # Byte ranges and Content-Length would otherwise refer to a compressed transfer.
    headers = {"Accept-Encoding": "identity"}
    if have and version:
        # If-Range: a server whose file has changed sends all of it with status 200 instead of the rest with 206.
        headers |= {"Range": f"bytes={have}-", "If-Range": version}
    started = time.monotonic()
    try:
        with requests.get(
            address, headers=headers, stream=True, timeout=(CONNECT_SECONDS, READ_SECONDS)
        ) as response:
            response.raise_for_status()
            _receive(response, url, part, _start(response, part, have))
    except requests.HTTPError as error:
        status = error.response.status_code
        # The partial file is complete or longer than the file; the next attempt starts at byte 0.
        if status == requests.codes.requested_range_not_satisfiable:
            _resume_info_path(part).unlink(missing_ok=True)
        raise _FailedError(
            f"HTTP status {status}", again=status >= 500 or status in (408, 416, 429)
        ) from error
    except requests.RequestException as error:
        # A host that drops packets, for example behind a firewall, would let every further attempt time out
        # too. Errors of requests for invalid addresses are ValueErrors.
        slow = time.monotonic() - started > CONNECT_SECONDS
        is_permanent = isinstance(error, ValueError) or (isinstance(error, requests.ConnectionError) and slow)
        raise _FailedError(unresolve(_reason(error), url), again=not is_permanent) from error


def _start(response: "Response", part: Path, have: int) -> int:
    """Return the offset in the file at which the response to a request for the bytes after `have` begins."""
    if response.status_code != 206:
        return 0
    if not response.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
        _resume_info_path(part).unlink(missing_ok=True)
        raise _FailedError("the server sent another byte range than the requested one", again=True)
    return have


def _receive(response: "Response", url: str, part: Path, start: int) -> None:
    # RFC 9110, section 13.1.5, does not allow a weak validator (W/) in If-Range.
    version = response.headers.get("ETag", response.headers.get("Last-Modified", ""))
    # The name of `part` without the leading dot and the suffix `.part` is the name of the file.
    with part.open("rb+") as file, _bar(response, part.name[1:-5], start) as bar:
        file.truncate(start)  # before the JSON file is written, because it must not describe older bytes
        _resume_info_path(part).write_text(
            json.dumps({"url": mask(url), "version": "" if version.startswith("W/") else version})
        )
        file.seek(start)
        for chunk in response.iter_content(CHUNK_BYTES):
            if bar.update(file.write(chunk)) and not sys.stderr.isatty():
                write_stderr("\n")  # in a log, each progress state is a line


def _bar(response: "Response", name: str, start: int) -> "tqdm[NoReturn]":
    """Return a progress bar of a file with `start` bytes, updated every 0.1 s on a terminal, LOG_SECONDS in a log."""
    from tqdm import tqdm

    pause = 0.1 if sys.stderr.isatty() else LOG_SECONDS
    length = response.headers.get("Content-Length", "")
    return tqdm(
        total=start + int(length) if length.isdecimal() else None, initial=start, unit="B", unit_scale=True,
        leave=False, desc=name, delay=pause, mininterval=pause, maxinterval=pause,
    )  # fmt: skip


def _version_begun(url: str, part: Path) -> str | None:
    """Return the HTTP validator of the partial file's version, or None if it cannot be resumed from `url`."""
    try:
        info = load_json(_resume_info_path(part).read_text())
        return str(info["version"]) or None if info["url"] == mask(url) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _reason(error: Exception) -> str:
    """Return a short description of an error of `requests`."""
    from requests import exceptions as known

    reasons: dict[type[Exception], str] = {
        known.ConnectTimeout: f"connecting timed out after {CONNECT_SECONDS:g} s",
        known.ReadTimeout: f"no data received for {READ_SECONDS:g} s",
        known.SSLError: "the TLS certificate cannot be verified on this machine",
        known.ProxyError: "the connection to the proxy failed",
        known.ConnectionError: "connection failed",
        known.ChunkedEncodingError: "the transfer was interrupted",
    }
    return next((text for kind, text in reasons.items() if isinstance(error, kind)), str(error))
