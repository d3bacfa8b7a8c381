"""What a converted data set holds, file by file: `manifest.json`, the last file that a conversion writes."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nnlo_lib.data.atomic import replacing
from nnlo_lib.errors import UserError

MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Shard:
    """One file of the store: its name, samples, size in bytes and SHA-256."""

    file: str
    samples: int
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Part:
    """One split: its samples, in the order of its shards."""

    samples: int
    shards: tuple[Shard, ...]


@dataclass(frozen=True)
class Manifest:
    """A data set in the store: `shape` of a sample, stored `dtype`, and `scale` from stored value to 0..1.

    `folder` is where it lies; it is not saved, so that a store can be moved.
    """

    folder: Path
    dataset: str
    format: str
    shape: tuple[int, ...]
    dtype: str
    classes: int
    scale: float
    shard_size: int
    splits: Mapping[str, Part]

    @classmethod
    def load(cls, path: Path) -> "Manifest":
        """Read the manifest at `path`, a file or its folder; raises UserError if it is missing or damaged."""
        path = path / MANIFEST if path.is_dir() else path
        try:
            return cls(folder=path.parent, **_typed(json.loads(path.read_text())))
        except FileNotFoundError as error:
            raise UserError(f"no data set at {path}; make it: python scripts/convert.py --help") from error
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise UserError(f"{path} is damaged ({error}); remove it and convert the data again") from error

    def save(self) -> Path:
        """Write `manifest.json` into the folder, whole or not at all."""
        fields = {name: value for name, value in asdict(self).items() if name != "folder"}
        with replacing(self.folder / MANIFEST) as part:
            part.write_text(json.dumps(fields, indent=2) + "\n")
        return self.folder / MANIFEST

    def verify(self) -> None:
        """Read every shard and compare its checksum; raises UserError naming the first that differs."""
        for part in self.splits.values():
            for shard in part.shards:
                if sha256(self.path(shard)) != shard.sha256:
                    raise self.damaged(shard, "its checksum differs from the manifest")

    def path(self, shard: Shard) -> Path:
        """Return the path of a shard that is there with the right size; raises UserError if it is not."""
        path = self.folder / shard.file
        if not path.is_file():
            raise self.damaged(shard, "the file is missing")
        if path.stat().st_size != shard.bytes:
            raise self.damaged(shard, f"{path.stat().st_size:,} bytes instead of {shard.bytes:,}")
        return path

    def damaged(self, shard: Shard, reason: str) -> UserError:
        """Build the error that names a bad shard and the command that makes it again."""
        return UserError(
            f"shard {self.folder / shard.file} is unreadable: {reason}; convert the data set again: "
            f"python scripts/convert.py --dataset {self.dataset} --raw {self.folder.parent / 'raw'} "
            f"--target {self.folder} --format {self.format} --shard-size {self.shard_size}"
        )


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _typed(fields: dict[str, Any]) -> dict[str, Any]:
    splits = {
        name: Part(part["samples"], tuple(Shard(**shard) for shard in part["shards"]))
        for name, part in fields["splits"].items()
    }
    return {**fields, "shape": tuple(fields["shape"]), "splits": splits}
