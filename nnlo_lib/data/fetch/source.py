"""The source of a data set, as an experiment names it: a folder, an archive or a URL."""

from pathlib import Path
from urllib.parse import urlsplit

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.catalog import DatasetSpec
from nnlo_lib.data.fetch.archive import ARCHIVE_SUFFIXES, is_archive


def is_remote(source: str) -> bool:
    """Return True if the source is a URL."""
    return "://" in source


def file_name(source: str) -> str:
    """Return the file name in a path or URL, without the query of a URL."""
    return Path(urlsplit(source).path if is_remote(source) else source).name


def required_source(dataset: DatasetSpec, source: str | None) -> str:
    """Return the source of a data set that has no download address. Raises UserError if there is none."""
    if source is None:
        hint = f" ({dataset.hint})" if dataset.hint else ""
        raise UserError(
            f"data.source: required, because data set {dataset.name} has no download address; set it to the folder, archive "
            f"or URL of the files{hint}"
        )
    return source


def local_source(dataset: DatasetSpec, source: str | None) -> Path:
    """Return the folder or archive of a data set of the user. Raises UserError if it does not exist."""
    source = required_source(dataset, source)
    path = Path(source).expanduser()
    if path.is_dir():
        return path
    if not is_archive(path.name):
        raise UserError(
            f"data.source: {source} is neither an existing folder nor an archive ({' '.join(ARCHIVE_SUFFIXES)})"
        )
    return local_archive(source)


def local_archive(source: str) -> Path:
    """Return the path of an archive. Raises UserError if it does not exist."""
    path = Path(source).expanduser()
    if not path.is_file():
        raise UserError(
            f"data.source: file not found: {source}; set data.source to an existing folder or archive"
        )
    return path
