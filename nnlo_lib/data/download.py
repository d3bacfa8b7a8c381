"""Download one file over HTTP: mirrors in turn, bounded patience, a progress bar on a terminal."""

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from nnlo_lib.errors import UserError

ATTEMPTS = 3
PAUSE_SECONDS = 0.5
CONNECT_SECONDS = 3.0
READ_SECONDS = 15.0
CHUNK = 1 << 16


class _FailedError(Exception):
    """Why one attempt failed, and whether the same address deserves another."""

    def __init__(self, reason: str, again: bool) -> None:
        super().__init__(reason)
        self.again = again


def download(urls: Sequence[str], part: Path, check: Callable[[Path, str], None]) -> None:
    """Write to `part` what the first good one of `urls` delivers; `check(part, url)` raises UserError if bad.

    Each address gets up to three attempts, but only one if it is slow to connect or says that it has no such
    file, so that a machine without network learns it in seconds. Raises UserError with the reason of each.
    """
    waiting, reasons = list(urls), dict[str, str]()
    for attempt in range(ATTEMPTS):
        time.sleep(PAUSE_SECONDS * attempt if waiting else 0)
        for url in tuple(waiting):
            try:
                _get(url, part)
                return check(part, url)
            except UserError as error:
                reasons[url] = str(error)
            except _FailedError as error:
                reasons[url] = f"{url}: {error}"
                if not error.again:
                    waiting.remove(url)
    raise UserError("\n  ".join(reasons.values()))


def _get(url: str, part: Path) -> None:
    from pooch import HTTPDownloader
    from requests import ConnectionError, HTTPError, RequestException

    get = HTTPDownloader(
        progressbar=sys.stderr.isatty(),
        chunk_size=CHUNK,
        timeout=(CONNECT_SECONDS, READ_SECONDS),
        headers={"Accept-Encoding": "identity"},
    )
    started = time.monotonic()
    try:
        get(url, str(part), None)
    except HTTPError as error:
        status = error.response.status_code
        raise _FailedError(f"HTTP status {status}", again=status >= 500 or status in (408, 429)) from error
    except RequestException as error:
        slow = time.monotonic() - started > CONNECT_SECONDS
        hopeless = isinstance(error, ValueError) or (isinstance(error, ConnectionError) and slow)
        raise _FailedError(_reason(error), again=not hopeless) from error


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
