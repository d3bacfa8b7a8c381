"""Download of one file over HTTP from the first of several mirrors that delivers it.

pooch 1.9 has one address for each file, tries permanent errors again, and checks the compressed file instead of its content.
"""

import glob
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nnlo_lib.core.atomic_file import atomic_write
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.logging_setup import progress_bar
from nnlo_lib.core.secrets import resolve, unresolve

if TYPE_CHECKING:
    from requests import RequestException

ATTEMPTS = 3
PAUSE_SECONDS = 0.5
CONNECT_SECONDS = 3.0
READ_SECONDS = 15.0
LOG_SECONDS = 10.0  # interval of progress lines if stderr is not a terminal
CHUNK_BYTES = 1 << 16


def download(urls: Sequence[str], target: Path, check: Callable[[Path, str], None]) -> None:
    """Download the file from the first of `urls` that delivers a file accepted by `check`.

    Each address gets up to ATTEMPTS attempts, but only one if connecting takes longer than CONNECT_SECONDS or
    if the server responds with a permanent error such as HTTP 404. A machine without network therefore fails
    within seconds. One process at a time may download `target`.

    Raises UserError with the reason for each address if all fail; if `target` cannot be written. `check`, of the temporary
    file and the URL, raises UserError if the file is not the expected one.
    """
    import requests

    # A process that was killed can have left its temporary file.
    for left in target.parent.glob(f".{glob.escape(target.name)}.*.part"):
        left.unlink(missing_ok=True)
    waiting, reasons = list(urls), dict[str, str]()
    with atomic_write(target) as part:
        for attempt in range(ATTEMPTS):
            time.sleep(PAUSE_SECONDS * attempt if waiting else 0)
            for url in tuple(waiting):
                started = time.monotonic()
                try:
                    _get(url, part, target.name)
                    return check(part, url)
                except UserError as error:
                    reasons[url] = str(error)
                except requests.RequestException as error:
                    reasons[url] = f"{url}: {unresolve(_reason(error), url)}"
                    if _is_permanent(error, time.monotonic() - started):
                        waiting.remove(url)
        raise UserError("\n  ".join(reasons.values()))


def _get(url: str, part: Path, name: str) -> None:
    """Download the file into `part`, with a progress bar, or a line every LOG_SECONDS in a log."""
    import requests

    # Content-Length would otherwise be that of a compressed transfer.
    headers = {"Accept-Encoding": "identity"}
    address, timeout = resolve(url, "data.source"), (CONNECT_SECONDS, READ_SECONDS)
    with requests.get(address, headers=headers, stream=True, timeout=timeout) as response:
        response.raise_for_status()
        length = response.headers.get("Content-Length", "")
        total = int(length) if length.isdecimal() else None
        done = 0
        with progress_bar(name, total, "B", log_s=LOG_SECONDS) as show, part.open("wb") as file:
            for chunk in response.iter_content(CHUNK_BYTES):
                done += file.write(chunk)
                show(done)


def _is_permanent(error: "RequestException", seconds: float) -> bool:
    """Return True if another attempt at the same address, which failed after `seconds`, would fail, too."""
    from requests import ConnectionError, HTTPError

    if isinstance(error, HTTPError):
        return error.response.status_code < 500 and error.response.status_code not in (408, 429)
    # Errors of requests for invalid addresses are ValueErrors. A host that drops packets, for example behind a
    # firewall, would let every further attempt time out.
    return isinstance(error, ValueError) or (isinstance(error, ConnectionError) and seconds > CONNECT_SECONDS)


def _reason(error: "RequestException") -> str:
    from requests import exceptions as known

    if isinstance(error, known.HTTPError):
        return f"HTTP status {error.response.status_code}"
    reasons = {
        known.ConnectTimeout: f"connecting timed out after {CONNECT_SECONDS:g} s",
        known.ReadTimeout: f"no data received for {READ_SECONDS:g} s",
        known.SSLError: "the TLS certificate cannot be verified on this machine",
        known.ProxyError: "the connection to the proxy failed",
        known.ConnectionError: "connection failed",
        known.ChunkedEncodingError: "the transfer was interrupted",
    }
    return next((text for kind, text in reasons.items() if isinstance(error, kind)), str(error))
