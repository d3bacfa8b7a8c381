"""What was fetched and where it lies: `fetched.json` in data/<dataset>/raw."""

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

    `folder` is where they are read: relative to `raw`, or the absolute path of data that stay where they are.
    `files` have name, bytes and what is known of their content.
    """

    raw: Path
    dataset: str
    source: str | list[str]
    folder: str
    files: tuple[dict[str, Any], ...]

    @classmethod
    def load(cls, raw: Path) -> "FetchRecord":
        """Read the record in `raw`; a folder without one is taken to hold the files itself."""
        try:
            fields = json.loads((raw / FETCH_RECORD_FILE).read_text())
            return cls(raw, fields["dataset"], fields["source"], fields["folder"], tuple(fields["files"]))
        except FileNotFoundError:
            return cls(raw, "", str(raw), ".", ())
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise UserError(
                f"{raw / FETCH_RECORD_FILE} is damaged ({error}); remove it and fetch again"
            ) from error

    @property
    def path(self) -> Path:
        """Return the folder to read from."""
        return self.raw / self.folder

    def save(self) -> Path:
        """Write the record, whole or not at all."""
        fields = {name: value for name, value in asdict(self).items() if name != "raw"}
        with atomic_write(self.raw / FETCH_RECORD_FILE) as part:
            part.write_text(json.dumps(fields, indent=2) + "\n")
        return self.raw / FETCH_RECORD_FILE
