"""What a checkpoint says of itself: `manifest.json`, written last, whose presence makes the checkpoint whole."""

import json
import os
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from nnlo_lib.errors import UserError

VERSION = 3  # of all that a checkpoint holds, the state of each algorithm included
MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Manifest:
    """key: what wrote it and may go on from it; step: of the run; metrics: of the epoch it ends, empty within one.

    bytes: of all ranks' files; seconds: that the training stood still for it; sha256: of each file.
    """

    key: str
    ranks: int
    epoch: int
    step: int
    metrics: dict[str, float]
    seconds: float
    bytes: int = 0
    sha256: dict[str, str] = field(default_factory=dict)
    version: int = VERSION

    @classmethod
    def read(cls, folder: Path) -> "Manifest":
        """Read a checkpoint's manifest. Raises UserError for another version, OSError or ValueError if it is damaged."""
        content = json.loads((folder / MANIFEST).read_bytes())
        version = content.get("version") if isinstance(content, dict) else None
        if isinstance(version, int) and version != VERSION:
            raise UserError(
                f"{folder} has format {version}, this nnlo reads and writes format {VERSION}: "
                f"go on with the nnlo that wrote it, or delete {folder.parents[1]} to start again"
            )
        try:
            return cls(**content)
        except TypeError as error:
            raise ValueError(f"{MANIFEST} is damaged: {error}") from error

    def having(self, files: dict[str, Any]) -> "Manifest":
        """Return the manifest of a checkpoint with these files: receipts by file name."""
        sums = {name: receipt.sha256 for name, receipt in files.items()}
        return replace(self, bytes=sum(receipt.bytes for receipt in files.values()), sha256=sums)

    def write(self, folder: Path) -> None:
        """Write the manifest to disk. Raises OSError."""
        with (folder / MANIFEST).open("w") as file:
            json.dump(asdict(self), file, indent=1)
            file.flush()
            os.fsync(file.fileno())
