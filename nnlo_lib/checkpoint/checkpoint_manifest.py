"""Names of checkpoint folders, and the manifest: `manifest.json`, written last, without which a checkpoint is incomplete.

Folders have at least eight digits as name if complete, with a prefix if unfinished or damaged.
"""

import json
import os
import re
import shutil
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from nnlo_lib.core.atomic_file import content_checksum, load_json
from nnlo_lib.core.errors import UserError

# Increase the version when the content of checkpoints or the meaning of a default changes; both are recorded in
# tests/checkpoint/test_checkpoint_version.py.
CHECKPOINT_VERSION = 8
READABLE_VERSIONS = (7, 8)  # 7: each rank's file has all its tensors
MANIFEST_FILE = "manifest.json"


@dataclass(frozen=True)
class CheckpointManifest:
    """Description of a checkpoint. The file also holds a `checksum` of all its other keys, in every format since 3."""

    key: str  # fingerprint of the run that wrote it; only a run with the same key may resume from it
    code: str  # version of nnlo that wrote it
    ranks: int
    epoch: int
    step: int
    metrics: dict[str, float]  # metrics of the epoch that it ends; empty within an epoch
    seconds: float  # seconds for which the training paused to write it
    bytes: int = 0
    sha256: dict[str, str] = field(default_factory=dict)
    version: int = CHECKPOINT_VERSION

    @classmethod
    def read(cls, folder: Path) -> "CheckpointManifest":
        """Read a checkpoint's manifest.

        Raises UserError if the checkpoint has another format, OSError or ValueError if the manifest cannot be read or is damaged.
        """
        content = load_json((folder / MANIFEST_FILE).read_bytes())
        if not isinstance(content, dict):
            raise ValueError(f"{MANIFEST_FILE} is damaged: it contains no JSON object")
        checksum, version = content.pop("checksum", None), content.get("version")
        # The checksum comes before the version: a flipped bit in `version` is damage, which is skipped, and
        # not another format, which is refused. Formats 1 and 2 had no checksum.
        if checksum != content_checksum(content) and (checksum is not None or version not in (1, 2)):
            raise ValueError(f"{MANIFEST_FILE} is damaged: its checksum does not match")
        if version not in READABLE_VERSIONS:
            code, known = (
                content.get("code", "of an early version"),
                " and ".join(map(str, READABLE_VERSIONS)),
            )
            raise UserError(
                f"{folder} was written by nnlo {code}: it has format {version}, but this nnlo reads only the "
                f"formats {known}; the checkpoint is unchanged. Resume with nnlo {code}, or move {folder.parents[1]} away to "
                f"train from the beginning"
            )
        try:
            return cls(**content)
        except TypeError as error:
            raise ValueError(f"{MANIFEST_FILE} is damaged: {error}") from error

    def is_beyond(self, epochs: int) -> bool:
        """Return True if the checkpoint is beyond the end of a training of `epochs` epochs."""
        # A checkpoint without metrics lies within the epoch that follows its complete epochs.
        return self.epoch > epochs or (self.epoch == epochs and not self.metrics)

    def with_files(self, files: dict[str, Any]) -> "CheckpointManifest":
        """Return the manifest with the sizes and checksums of `files`: receipts by file name."""
        sums = {name: receipt.sha256 for name, receipt in files.items()}
        return replace(self, bytes=sum(receipt.bytes for receipt in files.values()), sha256=sums)

    def write(self, folder: Path) -> None:
        """Write the manifest to disk. Raises OSError."""
        content = asdict(self)
        with (folder / MANIFEST_FILE).open("w") as file:
            json.dump(content | {"checksum": content_checksum(content)}, file, indent=1)
            file.flush()
            os.fsync(file.fileno())


def refuse_other_formats(checkpoints: Path) -> None:
    """Raise UserError if a folder has a checkpoint of another format; damaged checkpoints are left to the training."""
    for folder in checkpoint_folders(checkpoints):
        with suppress(OSError, ValueError):
            CheckpointManifest.read(folder)


def checkpoint_folders(folder: Path) -> list[Path]:
    """Return the complete checkpoints in `folder`, judged by their names, oldest first."""
    return [folder / checkpoint_folder_name(number) for number in checkpoint_numbers(folder)]


def checkpoint_numbers(folder: Path) -> list[int]:
    """Return the numbers of the checkpoints in `folder`, judged by their names, oldest first."""
    return sorted(number for prefix, number in _numbered(folder) if not prefix)


def next_checkpoint_number(folder: Path) -> int:
    """Return a number above all checkpoints of `folder`, unfinished and damaged ones included."""
    return max((number for _, number in _numbered(folder)), default=0) + 1


def _numbered(folder: Path) -> list[tuple[str, int]]:
    """Return prefix and number of each name of a checkpoint."""
    found = (re.fullmatch(r"(|.*\D)(\d{8,})", path.name) for path in folder.glob("*"))
    return [(match[1], int(match[2])) for match in found if match]


def checkpoint_folder_name(number: int) -> str:
    """Return the folder name of a complete checkpoint."""
    return f"{number:08d}"


def unfinished_folder_name(number: int) -> str:
    """Return the folder name of a checkpoint that is being written or removed."""
    return f"unfinished-{number:08d}"


def remove_checkpoint(folder: Path, number: int) -> None:
    """Remove a checkpoint; rename it first, so that a crash cannot leave an incomplete checkpoint."""
    unfinished = folder / unfinished_folder_name(number)
    with suppress(OSError):
        (folder / checkpoint_folder_name(number)).rename(unfinished)
    shutil.rmtree(unfinished, ignore_errors=True)
