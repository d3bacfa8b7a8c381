"""Fetching of the original files of a data set into a folder, with a check of each file."""

import hashlib
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from nnlo_lib.core.atomic_file import atomic_write, file_sha256
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.file_lock import exclusive_lock
from nnlo_lib.data.catalog import DatasetSpec, SourceFile
from nnlo_lib.data.fetch.archive import (
    content_sha256,
    extract,
    find_plain_or_gzip,
    is_archive,
    single_subfolder,
    variants,
)
from nnlo_lib.data.fetch.download import download
from nnlo_lib.data.fetch.record import (
    FETCH_RECORD_FILE,
    FetchRecord,
    checked_source,
    file_name,
    is_remote,
    tree_stamp,
)

LOCK_FILE = ".lock"
LOCK_TIMEOUT_SECONDS = 86_400.0  # longest wait for another process that fetches into the same folder
EXTRACTED_FOLDER = "files"  # folder of extracted archives, below the target


def fetch(dataset: DatasetSpec, target: Path, source: str | None = None) -> FetchRecord:
    """Copy or download the files of the data set to `target` and write a record of them.

    Files of a catalog data set that are already in `target` with the expected checksum are kept. Other files
    get their final name only after their checksum is verified. Folders of the user are recorded but not
    copied; archives are extracted into `target`. One process fetches into a folder at a time; others wait.

    The source is a folder, an archive, or a URL; None uses the mirrors or the installed package. Raises UserError if a
    file cannot be fetched or its checksum differs from the official one.
    """
    with exclusive_lock(target / LOCK_FILE, f"fetching into {target}", LOCK_TIMEOUT_SECONDS):
        if dataset.generated:
            fetched = FetchRecord(target, dataset.name, "drawn from data.reader.seed", ".", ())
        elif dataset.files:
            fetched = _official(dataset, target, source)
        else:
            fetched = _own(dataset, target, source)
        fetched.save()
    return fetched


def _official(dataset: DatasetSpec, target: Path, source: str | None) -> FetchRecord:
    base = source or _embedded(dataset)
    # The source is an archive of the official files. If the official file is itself an archive (CIFAR), it is
    # copied.
    if base and is_archive(file_name(base)) and not is_archive(dataset.files[0].name):
        base = str(target / _unpacked(_archive(dataset, base, target), target))
    dataset = _as_found(dataset, target, base)
    paths = [_fetch_file(dataset, file, target, base) for file in dataset.files]
    files = tuple(
        {
            "name": path.name,
            "bytes": path.stat().st_size,
            "content_sha256": file.content_sha256,
            "md5": file.md5,
        }
        for file, path in zip(dataset.files, paths, strict=True)
    )
    origin = source or dataset.embedded or list(dataset.mirrors)
    if not is_archive(paths[0].name):
        return FetchRecord(target, dataset.name, origin, ".", files)
    folder = _unpacked_once(paths[0], target, files)
    return FetchRecord(target, dataset.name, origin, folder, files, tree_stamp(target / folder))


def _own(dataset: DatasetSpec, target: Path, source: str | None) -> FetchRecord:
    source = checked_source(dataset, source)
    if not is_remote(source) and Path(source).is_dir():
        return FetchRecord(target, dataset.name, source, str(Path(source).resolve()), ())
    archive = _archive(dataset, source, target)
    files = ({"name": archive.name, "bytes": archive.stat().st_size, "sha256": file_sha256(archive)},)
    folder = _unpacked_once(archive, target, files)
    if file_sha256(archive) != files[0]["sha256"]:
        raise UserError(f"{archive}: the archive changed while it was extracted; run the same command again")
    return FetchRecord(target, dataset.name, source, folder, files, tree_stamp(target / folder))


def _archive(dataset: DatasetSpec, source: str, target: Path) -> Path:
    """Return the local archive, downloaded into `target` if `source` is a URL."""
    if not is_remote(source):
        return Path(checked_source(dataset, source))
    path = target / file_name(source)
    task = (
        f"download {source}; download it on another machine, copy it here and set data.source to the archive"
    )
    _download([source], path, lambda *_: None, task)
    return path


def _as_found(dataset: DatasetSpec, target: Path, base: str | None) -> DatasetSpec:
    """Return the data set, with its alternative file `instead` if only that file is in `target` or at `base`."""
    places = [str(target), base or ""]

    def is_available(file: SourceFile) -> bool:
        return any(file_name(each) == file.name or (Path(each) / file.name).is_file() for each in places)

    other = dataset.instead
    if other and is_available(other) and not is_available(dataset.files[0]):
        return replace(dataset, files=(other,))
    return dataset


def _unpacked_once(archive: Path, target: Path, files: tuple[dict[str, Any], ...]) -> str:
    """Return the folder of an archive's files relative to `target`; extract it unless all files are there.

    `files` is the description of the archive, as in the record.
    """
    before = FetchRecord.load(target) if (target / FETCH_RECORD_FILE).is_file() else None
    if before and before.files == files and before.extracted == tree_stamp(before.path):
        return before.folder
    return _unpacked(archive, target)


def _unpacked(archive: Path, target: Path) -> str:
    """Extract an archive below `target`; return the folder of its files relative to `target`."""
    extract(archive, target / EXTRACTED_FOLDER)
    return str(single_subfolder(target / EXTRACTED_FOLDER).relative_to(target))


def _embedded(dataset: DatasetSpec) -> str | None:
    """Return the data set's folder in an installed package (not imported); None if it is not embedded.

    Raises UserError if the package is not installed.
    """
    if dataset.embedded is None:
        return None
    package, _, folder = dataset.embedded.partition("/")
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise UserError(
            f"data set {dataset.name} is part of the package {package}, which is not installed; install it, or set data.source "
            f"to the folder of the files"
        )
    return str(Path(spec.submodule_search_locations[0]) / folder)


def _fetch_file(dataset: DatasetSpec, file: SourceFile, target: Path, base: str | None) -> Path:
    """Return the file in `target`, if its checksum is right, else copied or downloaded from `base` or the mirrors."""
    found = find_plain_or_gzip(target, file.name)
    with suppress(UserError):
        if found and not _difference(file, found, str(found)):
            return found
    if base is None or is_remote(base):
        final = target / file.name
        if base and file_name(base) == file.name:
            urls = [base]
        else:
            urls = [f"{each.rstrip('/')}/{file.name}" for each in ([base] if base else dataset.mirrors)]
        task = (
            f"download {file.name}; {_required_files(dataset)}: copy them to a folder and set data.source to it, or copy "
            f"them to {target}"
        )
        _download(urls, final, partial(_check, dataset, file), task)
    else:
        # A folder that contains the file with or without .gz, or the file itself under any name.
        is_file = Path(base).is_file()
        source = Path(base) if is_file else find_plain_or_gzip(Path(base), file.name)
        if source is None:
            raise UserError(f"data.source: {file.name} not found in {base}; {_required_files(dataset)}")
        final = target / (file.name if is_file else source.name.replace(".idx", "-idx"))
        with atomic_write(final) as part:
            shutil.copyfile(source, part)
            _check(dataset, file, part, str(source))
    # Readers take the first of the variants that exists, which must not be a wrong file of an earlier fetch.
    for other in set(variants(file.name)) - {final.name}:
        (target / other).unlink(missing_ok=True)
    return final


def _download(urls: list[str], path: Path, check: Callable[[Path, str], None], task: str) -> None:
    try:
        download(urls, path, check)
    except UserError as error:
        raise UserError(f"cannot {task}\n  {error}") from error


def _required_files(dataset: DatasetSpec) -> str:
    return (
        f"data set {dataset.name} requires the files {', '.join(file.name for file in dataset.files)}; for other files, such as "
        f"extracted ones, set data.dataset to a name of your own and data.reader: {dataset.reader}"
    )


def _check(dataset: DatasetSpec, file: SourceFile, path: Path, origin: str) -> None:
    """Raise UserError unless a file, whose `path` may have a temporary name, has the official checksum."""
    if difference := _difference(file, path, origin):
        raise UserError(
            f"{origin}: not the official {file.name} ({difference}); download or copy the file again, or change "
            f"data.source. To use other files on purpose, set data.dataset to a name that is not in the catalog and "
            f"data.reader: {{name: {dataset.reader}}}"
        )


def _difference(file: SourceFile, path: Path, origin: str) -> str | None:
    """Return a text that compares the checksum with the official one, or None if they are equal."""
    if file.content_sha256:
        found, expected = content_sha256(path, origin), file.content_sha256
        label = "the SHA-256 of the content"
    else:
        with path.open("rb") as stream:
            # Systems in FIPS mode refuse MD5 unless it is declared as not used for security.
            found = hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
        expected, label = file.md5 or "", "the MD5"
    return None if found == expected else f"{label} is {found[:16]}..., expected {expected[:16]}..."
