"""Identity of the original files of a data set: equal for equal contents, wherever the files are."""

import os
from collections.abc import Iterator
from pathlib import Path

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.fetch.source import is_remote, local_source
from nnlo_lib.data.identity.source_checksums import SourceChecksums
from nnlo_lib.data.identity.store_settings import StoreSettings, short_hash
from nnlo_lib.data.readers import DatasetContents, read

# Folders in the working directory that nnlo writes; their files are no source of a user's reader.
OWN_FOLDERS = ("data", "results", "logs")


def source_identity(settings: StoreSettings, checksums: SourceChecksums) -> str:
    """Return a hash of the original files: of the official checksums, of an archive, or of all files of a folder.

    For a URL, the hash is of the URL, because its file is read only when it is fetched.

    Args:
        settings: settings that name the source.
        checksums: known checksums of files.

    Raises:
        UserError: if the source does not exist or its files cannot be read.
    """
    if files := settings.spec.files:
        return short_hash([[file.name, file.content_sha256, file.md5] for file in files])
    source = settings.source
    if source and is_remote(source):
        return short_hash(source)
    path = local_source(settings.spec, source)
    return folder_digest(settings, path, checksums) if path.is_dir() else checksums.of([path])[0][:12]


def folder_digest(settings: StoreSettings, folder: Path, checksums: SourceChecksums) -> str:
    """Return a hash of the names, order and contents of the files of which each shard is made.

    Args:
        settings: settings of the reader.
        folder: folder of the original files.
        checksums: known checksums of files.
    """
    if ":" in settings.spec.reader:  # a user's reader can read any file
        return _digest([("", "", sorted(_all_files(folder)))], folder, checksums)
    contents = read_contents(settings, folder)
    return _digest([(unit.split, unit.name, unit.sources) for unit in contents.units], folder, checksums)


def read_contents(settings: StoreSettings, folder: Path) -> DatasetContents:
    """Return the contents of the files in `folder`. Raises UserError if a file is missing or damaged."""
    if settings.shard_size < 1:
        raise UserError(f"data.shard_size: must be at least 1, not {settings.shard_size}")
    options = {key: value for key, value in settings.reader.items() if key not in ("name", "args")}
    # The options of a user's reader are in `args`.
    options |= settings.reader.get("args", {})
    return read(settings.spec.reader, folder, settings.shard_size, options)


def _digest(
    units: list[tuple[str, str, list[Path] | tuple[Path, ...]]], folder: Path, checksums: SourceChecksums
) -> str:
    sums = iter(checksums.of([path for _, _, paths in units for path in paths]))
    return short_hash(
        [
            [split, name, *([os.path.relpath(path, folder), next(sums)] for path in paths)]
            for split, name, paths in units
        ]
    )


def _all_files(folder: Path) -> Iterator[Path]:
    """Yield the files below a folder, without hidden ones, caches of Python, and the files that nnlo writes."""
    for place, folders, files in os.walk(folder, followlinks=True):
        own = OWN_FOLDERS if Path(place).resolve() == Path.cwd() else ()
        folders[:] = [name for name in folders if name[0] != "." and name not in (*own, "__pycache__")]
        yield from (Path(place, name) for name in files if name[0] != "." and Path(place, name).is_file())
