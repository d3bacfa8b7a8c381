"""What a checkpoint says of itself: `manifest.json`, written last, whose presence makes the checkpoint whole."""

import hashlib
import json
import os
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from nnlo_lib.core.errors import UserError

# raised with what checkpoints hold and what defaults mean; tests/checkpoint/test_checkpoint_version.py has both
CHECKPOINT_VERSION = 3
MANIFEST_FILE = "manifest.json"


@dataclass(frozen=True)
class CheckpointManifest:
    """key: what wrote it and may go on from it; code: the nnlo that did; step: of the run.

    metrics: of the epoch it ends, empty within one; bytes: of all ranks' files; seconds: that the training stood still
    for it; sha256: of each file. The file also has a `checksum` of all else in it, whatever the version.
    """

    key: str
    code: str
    ranks: int
    epoch: int
    step: int
    metrics: dict[str, float]
    seconds: float
    bytes: int = 0
    sha256: dict[str, str] = field(default_factory=dict)
    version: int = CHECKPOINT_VERSION

    @classmethod
    def read(cls, folder: Path) -> "CheckpointManifest":
        """Read a checkpoint's manifest. Raises UserError for another version, OSError or ValueError if it is damaged."""
        content = json.loads((folder / MANIFEST_FILE).read_bytes())
        if not isinstance(content, dict):
            raise ValueError(f"{MANIFEST_FILE} is damaged: no block of keys")
        checksum, version = content.pop("checksum", None), content.get("version")
        oldest = version in (1, 2) and checksum is None  # they had none
        if checksum != _checksum(content) and not oldest:
            raise ValueError(f"{MANIFEST_FILE} is damaged: its checksum differs")
        if version != CHECKPOINT_VERSION:
            raise UserError(_refusal(folder, version, content.get("code")))
        try:
            return cls(**content)
        except TypeError as error:
            raise ValueError(f"{MANIFEST_FILE} is damaged: {error}") from error

    def with_files(self, files: dict[str, Any]) -> "CheckpointManifest":
        """Return the manifest of a checkpoint with these files: receipts by file name."""
        sums = {name: receipt.sha256 for name, receipt in files.items()}
        return replace(self, bytes=sum(receipt.bytes for receipt in files.values()), sha256=sums)

    def write(self, folder: Path) -> None:
        """Write the manifest to disk. Raises OSError."""
        content = asdict(self)
        with (folder / MANIFEST_FILE).open("w") as file:
            json.dump(content | {"checksum": _checksum(content)}, file, indent=1)
            file.flush()
            os.fsync(file.fileno())


def _checksum(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _refusal(folder: Path, version: object, code: str | None) -> str:
    writer = f"nnlo {code}" if code else "an older nnlo, which did not leave its name"
    return (
        f"{folder} was written by {writer}: it has format {version}, and this nnlo reads and writes format {CHECKPOINT_VERSION}; "
        f"it is left as it is. Go on with {f'nnlo {code}' if code else 'the nnlo that wrote it'}, or, to start again, "
        f"move {folder.parents[1]} away"
    )
