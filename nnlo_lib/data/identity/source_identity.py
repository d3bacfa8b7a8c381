"""Identity of the original files of a data set: equal for equal contents, wherever the files are."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.catalog import DatasetSpec
from nnlo_lib.data.fetch.record import FetchRecord
from nnlo_lib.data.fetch.source import is_remote, local_source
from nnlo_lib.data.identity.source_checksums import SourceChecksums
from nnlo_lib.data.identity.store_settings import StoreSettings, short_hash
from nnlo_lib.data.readers import ConversionUnit, DatasetContents, read

# Names in the working directory, and below its folder `data`, that nnlo writes.
OWN_FOLDERS = ("results", "logs")
OWN_NAMES = re.compile(r"(raw|hdf5|npz)(-[0-9a-f]{12})?|stores\.json|checksums\.json")


def source_identity(settings: StoreSettings, checksums: SourceChecksums) -> str:
    """Return a hash of the original files: of the official checksums, of an archive, or of all files of a folder.

    For a URL, the hash is of the URL, because its file is read only when it is fetched.

    Args:
        settings: settings that name the source.
        checksums: known checksums of files.

    Raises:
        UserError: if the source does not exist or its files cannot be read.
    """
    if settings.spec.has_fixed_source:
        return _official_identity(settings.spec)
    source = settings.source
    if source and is_remote(source):
        return short_hash(source)
    path = local_source(settings.spec, source)
    return folder_digest(settings, path, checksums) if path.is_dir() else checksums.of([path])[0][:12]


def fetched_identity(dataset: DatasetSpec, record: FetchRecord) -> str:
    """Return the identity of fetched files, which `source_identity` had before they were fetched.

    Args:
        dataset: specification of the data set.
        record: record of files of the catalog, or of an archive.
    """
    if dataset.has_fixed_source:
        return _official_identity(dataset)
    source = str(record.source)
    return short_hash(source) if is_remote(source) else str(record.files[0].get("sha256", ""))[:12]


def _official_identity(dataset: DatasetSpec) -> str:
    return short_hash([[file.name, file.content_sha256, file.md5] for file in dataset.files])


def folder_digest(settings: StoreSettings, folder: Path, checksums: SourceChecksums) -> str:
    """Return a hash of the names, order and contents of the files of which each shard is made.

    Args:
        settings: settings of the reader.
        folder: folder of the original files.
        checksums: known checksums of files.
    """
    if ":" in settings.spec.reader:  # a user's reader can read any file
        files = sorted(_all_files(folder))
        return short_hash(_named_checksums(files, folder, checksums))
    units = read_contents(settings, folder).units
    files = list(dict.fromkeys(path for unit in units for path in unit.sources))
    return short_hash(
        [[describe_unit(unit, folder) for unit in units], _named_checksums(files, folder, checksums)]
    )


def describe_unit(unit: ConversionUnit, folder: Path) -> list[Any]:
    """Return split, name, files and ranges of samples of a unit as a JSON value; paths are relative to `folder`."""
    parts = [[os.path.relpath(part.path, folder), part.first, part.samples] for part in unit.parts]
    return [unit.split, unit.name, [os.path.relpath(path, folder) for path in unit.sources], parts]


def read_contents(settings: StoreSettings, folder: Path) -> DatasetContents:
    """Return the contents of the files in `folder`. Raises UserError if a file is missing or damaged."""
    if settings.shard_size < 1:
        raise UserError(f"data.shard_size: must be at least 1, not {settings.shard_size}")
    options = {key: value for key, value in settings.reader.items() if key not in ("name", "args")}
    # The options of a user's reader are in `args`.
    options |= settings.reader.get("args", {})
    return read(settings.spec.reader, folder, settings.shard_size, options)


def _named_checksums(files: list[Path], folder: Path, checksums: SourceChecksums) -> list[list[str]]:
    names = (os.path.relpath(path, folder) for path in files)
    return [[name, checksum] for name, checksum in zip(names, checksums.of(files), strict=True)]


def _all_files(folder: Path) -> Iterator[Path]:
    """Yield the files below a folder, without hidden ones, caches of Python, and the files that nnlo writes."""
    for place, folders, files in os.walk(folder, followlinks=True):
        within = os.path.relpath(os.path.abspath(place))
        folders[:] = [name for name in folders if not _is_left_out(within, name)]
        yield from (
            Path(place, name)
            for name in files
            if not _is_left_out(within, name) and Path(place, name).is_file()
        )


def _is_left_out(within: str, name: str) -> bool:
    """Return True for a name in a folder, relative to the working directory, that is no source of a user's reader."""
    own = (within == "." and name in OWN_FOLDERS) or (
        Path(within).parts[:1] == ("data",) and OWN_NAMES.fullmatch(name) is not None
    )
    return name[0] == "." or name == "__pycache__" or own
