"""Record of the fetched files and their folder: `fetched.json` in data/<dataset>/raw."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nnlo_lib.core.atomic_file import atomic_write
from nnlo_lib.core.errors import UserError

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
    """

    raw: Path
    dataset: str
    source: str | list[str]
    folder: str
    files: tuple[dict[str, Any], ...]

    @classmethod
    def load(cls, raw: Path) -> "FetchRecord":
        """Return the record in `raw`.

        If `raw` has no record, return one that names `raw` itself as the folder of the files. Raises
        UserError if the record is damaged.
        """
        try:
            fields = json.loads((raw / FETCH_RECORD_FILE).read_text())
            return cls(raw, fields["dataset"], fields["source"], fields["folder"], tuple(fields["files"]))
        # A folder of files that nnlo did not fetch can be converted, too.
        except FileNotFoundError:
            return cls(raw, "", str(raw), ".", ())
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise UserError(
                f"{raw / FETCH_RECORD_FILE}: damaged ({error}); remove it and fetch the data set again"
            ) from error

    @property
    def path(self) -> Path:
        """Return the folder to read from."""
        return self.raw / self.folder

    def save(self) -> Path:
        """Write the record atomically; return its path."""
        fields = {name: value for name, value in asdict(self).items() if name != "raw"}
        with atomic_write(self.raw / FETCH_RECORD_FILE) as part:
            part.write_text(json.dumps(fields, indent=2) + "\n")
        return self.raw / FETCH_RECORD_FILE
