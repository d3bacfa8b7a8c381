"""Checksums of original files, kept by path, size and modification time so that unchanged files are read once."""

import json
import os
import stat
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nnlo_lib.core.atomic_file import atomic_write
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.json_text import load_json
from nnlo_lib.data.identity.file_checksum import file_sha256

# A file can change again within the resolution of its time; a file that changed this recently is read again.
SETTLED_SECONDS = 2.0


@dataclass(frozen=True)
class SourceChecksums:
    """SHA-256 of files, with a JSON file of the known ones.

    Attributes:
        file: JSON file, which need not exist: [stamp, SHA-256] by absolute path; see `stamp_of`.
    """

    file: Path

    def of(self, paths: Sequence[Path]) -> list[str]:
        """Return the checksum of each file; files that changed since the last call are read.

        Raises UserError if a file cannot be read.
        """
        known, before = self._load(), time.time_ns()
        stamps = {path: stamp_of(path) for path in dict.fromkeys(paths)}
        changed = [
            path for path, stamp in stamps.items() if known.get(os.path.abspath(path), [None])[0] != stamp
        ]
        fresh = dict(zip(changed, _read_all(changed), strict=True))
        found = {path: fresh.get(path) or known[os.path.abspath(path)][1] for path in stamps}
        settled = [path for path in fresh if before - max(stamps[path][1:3]) > SETTLED_SECONDS * 1e9]
        if settled:
            self._save(known | {os.path.abspath(path): [stamps[path], found[path]] for path in settled})
        return [found[path] for path in paths]

    def _load(self) -> dict[str, list[Any]]:
        try:
            known = load_json(self.file.read_text())
        except (OSError, ValueError):  # the checksums are then computed again
            return {}
        entries = known.items() if isinstance(known, dict) else ()
        return {path: entry for path, entry in entries if isinstance(entry, list) and len(entry) == 2}

    def _save(self, known: dict[str, list[Any]]) -> None:
        # Without the file, for example in a folder that is only readable, the next start reads the files again.
        with suppress(UserError), atomic_write(self.file) as part:
            part.write_text(json.dumps(known))


def stamp_of(path: Path) -> list[int]:
    """Return size, times of modification and of change in ns, and inode of a file, which tell if it was replaced.

    They are zeros for a folder, whose files count instead.

    Raises UserError if the file cannot be read.
    """
    try:
        status = path.stat()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    if stat.S_ISDIR(status.st_mode):
        return [0, 0, 0, 0]
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]


def _read_all(paths: Sequence[Path]) -> list[str]:
    """Return the checksums of files, read in parallel; a progress bar is shown on a terminal."""
    from tqdm import tqdm

    # Threads, because hashlib computes without holding the interpreter's lock.
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        return list(
            tqdm(pool.map(_sha256, paths), "checksums", len(paths), unit="file", disable=None, leave=False)
        )


def _sha256(path: Path) -> str:
    try:
        return file_sha256(path)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
