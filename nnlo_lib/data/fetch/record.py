"""Record of the fetched files, `fetched.json` in data/<dataset>/raw, and their source: a folder, an archive or a URL."""

import hashlib
import json
import stat
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from nnlo_lib.core.atomic_file import atomic_write, load_json
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.secrets import mask_settings, substitute
from nnlo_lib.data.catalog import DatasetSpec
from nnlo_lib.data.fetch.archive import ARCHIVE_SUFFIXES, is_archive

FETCH_RECORD_FILE = "fetched.json"
Stamp = tuple[int, ...]


@dataclass(frozen=True)
class FetchRecord:
    """The original files of a data set."""

    raw: Path
    dataset: str
    source: str | list[str]  # origin of the files: a path or URL, or the list of mirrors
    folder: str
    files: tuple[dict[str, Any], ...]  # name, size in bytes and checksums of each fetched file
    # stamp of the files of an extracted archive, see `tree_stamp`; None without one
    extracted: str | None = None

    @classmethod
    def load(cls, raw: Path) -> "FetchRecord":
        """Return the record in `raw`.

        If `raw` has no record, return one that names `raw` itself as the folder of the files. Raises
        UserError if the record is damaged.
        """
        try:
            fields = load_json((raw / FETCH_RECORD_FILE).read_text())
            files, extracted = tuple(fields["files"]), fields.get("extracted")
            return cls(raw, fields["dataset"], fields["source"], fields["folder"], files, extracted)
        # A folder of files that nnlo did not fetch can be converted, too.
        except FileNotFoundError:
            return cls(raw, "", str(raw), ".", ())
        except (OSError, ValueError, TypeError, LookupError, AttributeError) as error:
            raise UserError(
                f"{raw / FETCH_RECORD_FILE}: damaged ({error}); remove it and fetch the data set again"
            ) from error

    @property
    def path(self) -> Path:
        """Return the folder to read from."""
        return self.raw / self.folder

    def save(self) -> None:
        """Write the record atomically unless it is unchanged."""
        path = self.raw / FETCH_RECORD_FILE
        fields = {name: value for name, value in asdict(self).items() if name != "raw"}
        fields["source"] = mask_settings(self.source)
        text = json.dumps(fields, indent=2) + "\n"
        if not path.is_file() or path.read_text() != text:
            with atomic_write(path) as part:
                part.write_text(text)


def tree_stamp(folder: Path) -> str:
    """Return a hash of the names, sizes and modification times of the files below a folder."""
    found = sorted(
        (str(path.relative_to(folder)), path.stat()) for path in folder.rglob("*") if path.is_file()
    )
    texts = (f"{name} {status.st_size} {status.st_mtime_ns}" for name, status in found)
    return hashlib.sha256("\n".join(texts).encode(errors="surrogateescape")).hexdigest()


def tree_size(folder: Path) -> tuple[int, int]:
    """Return the number and the total size in bytes of the files below a folder."""
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    return len(sizes), sum(sizes)


def stamp_of(path: Path) -> Stamp:
    """Return size, times of modification and of change in ns, and inode of a file, which tell if it was replaced.

    They are zeros for a folder, whose files count instead. Raises UserError if the file cannot be read.
    """
    try:
        status = path.stat()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    if stat.S_ISDIR(status.st_mode):
        return (0, 0, 0, 0)
    return (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)


def is_remote(source: str) -> bool:
    """Return True if the source is a URL."""
    return "://" in substitute(source)


def file_name(source: str) -> str:
    """Return the file name in a path or URL, without the query of a URL."""
    return Path(urlsplit(substitute(source)).path if is_remote(source) else source).name


def checked_source(dataset: DatasetSpec, source: str | None) -> str:
    """Return the folder, archive or URL of the files of the user. Raises UserError if it is missing."""
    if source is None:
        hint = f" ({dataset.hint})" if dataset.hint else ""
        raise UserError(
            f"data.source: required, because data set {dataset.name} has no download address; set it to the folder, archive "
            f"or URL of the files{hint}"
        )
    if not is_archive(file_name(source)) and (is_remote(source) or not Path(source).is_dir()):
        raise UserError(
            f"data.source: {source} is neither an existing folder nor an archive ({' '.join(ARCHIVE_SUFFIXES)})"
        )
    if not is_remote(source) and not Path(source).exists():
        raise UserError(
            f"data.source: file not found: {source}; set data.source to an existing folder or archive"
        )
    return source
