"""Identity of the original files of a data set: equal for equal contents, wherever the files are.

Checksums are kept by path, size and modification time, so that unchanged files are read once.
"""

import json
import os
import re
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nnlo_lib.core.atomic_file import atomic_write, file_sha256, load_json
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.logging_setup import tracked
from nnlo_lib.core.secrets import without_credentials
from nnlo_lib.data.catalog import DatasetSpec
from nnlo_lib.data.fetch.record import FetchRecord, checked_source, is_remote, stamp_of
from nnlo_lib.data.readers.base import ConversionUnit, DatasetContents, read
from nnlo_lib.data.store_settings import StoreSettings, short_hash

# A file can change again within the resolution of its time; a file that changed this recently is read again.
SETTLED_SECONDS = 2.0
# Names in the working directory, and below its folder `data`, that nnlo writes.
OWN_FOLDERS = ("results", "logs")
OWN_NAMES = re.compile(r"(raw|hdf5|npz)(-[0-9a-f]{12})?|stores\.json|checksums\.json")


@dataclass(frozen=True)
class SourceChecksums:
    """SHA-256 of files, with a JSON file of the known ones."""

    file: Path  # JSON file, which need not exist: [stamp, SHA-256] by absolute path; see `stamp_of`

    def of(self, paths: Sequence[Path]) -> list[str]:
        """Return the checksum of each file; files that changed since the last call are read.

        Raises UserError if a file cannot be read.
        """
        known, before = self._load(), time.time_ns()
        stamps = {path: stamp_of(path) for path in dict.fromkeys(paths)}
        changed = [
            path for path, stamp in stamps.items() if known.get(os.path.abspath(path), [None])[0] != [*stamp]
        ]
        # Threads, because hashlib computes without holding the interpreter's lock.
        with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
            read = tracked(pool.map(file_sha256, changed), "checksums", len(changed), "files")
            fresh = dict[Path, str]()
            try:
                for path, checksum in zip(changed, read, strict=True):
                    fresh[path] = checksum
            except OSError as error:
                raise UserError(f"cannot read {changed[len(fresh)]}: {error.strerror}") from error
        found = {path: fresh.get(path) or known[os.path.abspath(path)][1] for path in stamps}
        settled = [path for path in fresh if before - max(stamps[path][1:3]) > SETTLED_SECONDS * 1e9]
        if settled:
            known |= {os.path.abspath(path): [stamps[path], found[path]] for path in settled}
            # Without the file, for example in a folder that is only readable, the next start reads the files again.
            with suppress(UserError), atomic_write(self.file) as part:
                part.write_text(json.dumps(known))
        return [found[path] for path in paths]

    def _load(self) -> dict[str, list[Any]]:
        try:
            known = load_json(self.file.read_text())
        except (OSError, ValueError):  # the checksums are then computed again
            return {}
        entries = known.items() if isinstance(known, dict) else ()
        return {path: entry for path, entry in entries if isinstance(entry, list) and len(entry) == 2}


def source_identity(settings: StoreSettings, checksums: SourceChecksums) -> str:
    """Return a hash of the original files: of the official checksums, of an archive, or of all files of a folder.

    For a URL, the hash is of the URL without its password, because its file is read only when it is fetched. Raises
    UserError if the source does not exist or its files cannot be read.
    """
    if settings.spec.has_fixed_source:
        return _official_identity(settings.spec)
    source = settings.source
    if source and is_remote(source):
        return short_hash(without_credentials(source))
    path = Path(checked_source(settings.spec, source))
    return folder_digest(settings, path, checksums) if path.is_dir() else checksums.of([path])[0][:12]


def fetched_identity(settings: StoreSettings, record: FetchRecord, checksums: SourceChecksums) -> str:
    """Return the identity of fetched files, or of the files in a folder as they are now, equal to `source_identity`."""
    if settings.spec.has_fixed_source:
        return _official_identity(settings.spec)
    if not record.files:
        return folder_digest(settings, record.path, checksums)
    # The record has no secrets; the folder of files from a URL is named by the URL's identity.
    of_url = record.raw.name.partition("-")[2]
    return of_url if is_remote(str(record.source)) else str(record.files[0].get("sha256", ""))[:12]


def _official_identity(dataset: DatasetSpec) -> str:
    return short_hash([[file.name, file.content_sha256, file.md5] for file in dataset.files])


def folder_digest(settings: StoreSettings, folder: Path, checksums: SourceChecksums) -> str:
    """Return a hash of the names, order and contents of the files of which each shard is made."""
    is_own = ":" in settings.spec.reader  # a user's reader can read any file
    units = () if is_own else read_contents(settings, folder).units
    files = (
        sorted(_all_files(folder))
        if is_own
        else list(dict.fromkeys(path for unit in units for path in unit.sources))
    )
    names = (os.path.relpath(path, folder) for path in files)
    found = [[name, checksum] for name, checksum in zip(names, checksums.of(files), strict=True)]
    return short_hash(found if is_own else [[describe_unit(unit, folder) for unit in units], found])


def describe_unit(unit: ConversionUnit, folder: Path) -> list[Any]:
    """Return split, name, files, ranges of samples and changes of a unit as a JSON value; paths are relative to `folder`."""
    parts = [[os.path.relpath(part.path, folder), part.first, part.samples] for part in unit.parts]
    return [
        unit.split,
        unit.name,
        [os.path.relpath(path, folder) for path in unit.sources],
        parts,
        *unit.changes,
    ]


def read_contents(settings: StoreSettings, folder: Path) -> DatasetContents:
    """Return the contents of the files in `folder`. Raises UserError if a file is missing or damaged."""
    if settings.shard_size < 1:
        raise UserError(f"data.shard_size: must be at least 1, not {settings.shard_size}")
    options = {key: value for key, value in settings.reader.items() if key not in ("name", "args")}
    # The options of a user's reader are in `args`.
    options |= settings.reader.get("args", {})
    return read(settings.spec.reader, folder, settings.shard_size, options)


def _all_files(folder: Path) -> Iterator[Path]:
    """Yield the files below a folder, without hidden ones, caches of Python, and the files that nnlo writes."""
    for place, folders, files in os.walk(folder, followlinks=True):
        within = Path(os.path.relpath(os.path.abspath(place))).parts
        left_out = {
            name
            for name in (*folders, *files)
            if name[0] == "."
            or name == "__pycache__"
            or (not within and name in OWN_FOLDERS)
            or (within[:1] == ("data",) and OWN_NAMES.fullmatch(name))
        }
        folders[:] = set(folders) - left_out
        yield from (path for name in set(files) - left_out if (path := Path(place, name)).is_file())
