"""Record in a page of what the page was written from: checksums of its inputs and of its own text."""

import hashlib
import html
import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from nnlo_lib.config.paths import SearchPaths
from nnlo_lib.core.json_text import load_json
from nnlo_lib.data.identity.file_checksum import file_sha256
from nnlo_lib.state.finished_run import FinishedRun

_RECORD = re.compile(r'<meta name="nnlo-record" content="([^"]*)">\n')
_HEAD = "<head>\n"


@dataclass(frozen=True)
class PageRecord:
    """Checksums that a page records.

    Attributes:
        inputs: SHA-256 of each input by path, relative to the folder of the page.
        text: SHA-256 of the page without the record.
        is_unchanged: whether the page still has this checksum.
    """

    inputs: dict[str, str]
    text: str
    is_unchanged: bool


def page_inputs(jobs: Iterable[FinishedRun], search: Path | None) -> list[Path]:
    """Return the files that the page of some jobs and of a search is made from.

    The summary of a job holds the checksums of its other outputs, which are therefore not listed.
    """
    files = [
        path for job in jobs for path in (job.paths.summary, job.paths.evaluation, job.paths.state.attempts)
    ]
    if search:
        paths = SearchPaths(search)
        files += [paths.config, *sorted(paths.trials.glob("*.json")), *sorted(paths.results())]
    return [path for path in files if path.exists()]


def with_record(text: str, inputs: Iterable[Path], folder: Path) -> str:
    """Return the page with the record of its inputs.

    Args:
        text: the page.
        inputs: files that the page was made from.
        folder: folder of the page.
    """
    checksums = {os.path.relpath(path, folder): file_sha256(path) for path in inputs}
    record = html.escape(json.dumps({"inputs": checksums, "text": _checksum(text)}))
    return text.replace(_HEAD, f'{_HEAD}<meta name="nnlo-record" content="{record}">\n', 1)


def read_record(page: Path) -> PageRecord | None:
    """Return the record of a page, or None if an older version wrote the page or the record is damaged."""
    text = page.read_text(encoding="utf-8", errors="replace")
    found = _RECORD.search(text)
    try:
        record = load_json(html.unescape(found[1])) if found else {}
        unchanged = _checksum(_RECORD.sub("", text, count=1)) == record["text"]
        return PageRecord(dict(record["inputs"]), record["text"], unchanged)
    except (ValueError, KeyError, TypeError):
        return None


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
