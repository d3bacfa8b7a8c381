"""Record of the fetched files and their folder: `fetched.json` in data/<dataset>/raw."""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nnlo_lib.core.atomic_file import atomic_write
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.json_text import load_json

FETCH_RECORD_FILE = "fetched.json"


@dataclass(frozen=True)
class FetchRecord:
    """The original files of a data set.

    Attributes:
        raw: folder of the record.
        dataset: name of the data set.
        source: origin of the files: a path or URL, or the list of mirrors.
        folder: folder to read the files from, relative to `raw`; absolute for data that are not copied.
        files: name, size in bytes and checksums of each fetched file.
        extracted: stamp of the files of an extracted archive, see `tree_stamp`; None without one.
    """

    raw: Path
    dataset: str
    source: str | list[str]
    folder: str
    files: tuple[dict[str, Any], ...]
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

    def save(self) -> Path:
        """Write the record atomically unless it is unchanged; return its path."""
        path = self.raw / FETCH_RECORD_FILE
        fields = {name: value for name, value in asdict(self).items() if name != "raw"}
        text = json.dumps(fields, indent=2) + "\n"
        if not path.is_file() or path.read_text() != text:
            with atomic_write(path) as part:
                part.write_text(text)
        return path


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
