"""Manifest of a converted data set and its files: `manifest.json`, the last file that a conversion writes."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from shlex import quote
from typing import Annotated, Any, Literal

from pydantic import Field

from nnlo_lib.core.atomic_file import atomic_write
from nnlo_lib.core.errors import UserError
from nnlo_lib.data.store.manifest_check import check_manifest, parse_json

MANIFEST_FILE = "manifest.json"

MAX_CLASSES = 10**7  # the output layer of a model with more classes fits in no memory

Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]
Name = Annotated[str, Field(min_length=1)]


@dataclass(frozen=True)
class Shard:
    """One file of the store.

    Attributes:
        file: path relative to the store.
        samples: number of samples.
        bytes: size of the file.
        sha256: checksum of the file.
        skipped: number of corrupt records that were left out.
        non_finite: number of values that are NaN or infinite.
    """

    file: Name
    samples: Positive
    bytes: Count
    sha256: str
    skipped: Count = 0
    non_finite: Count = 0


@dataclass(frozen=True)
class ArraySpec:
    """One array that every sample has: its name in the shards, the shape of a sample and the stored dtype.

    `mean` and `std` are computed over the finite values of the training samples for each channel (first axis),
    in stored units.
    """

    name: Name
    shape: tuple[Positive, ...]
    dtype: str
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()


@dataclass(frozen=True)
class SplitInfo:
    """One split: its number of samples, and its shards in the order of the samples."""

    samples: Positive
    shards: tuple[Shard, ...]


@dataclass(frozen=True)
class DataManifest:
    """A data set in the store.

    Attributes:
        folder: folder of the store; not saved, so that a store can be moved.
        dataset: name of the data set.
        format: format of the shards.
        inputs: input arrays.
        labels: label array.
        classes: number of classes; None if labels are not classes.
        first_class: number of the first class in the shards.
        class_names: names of the classes; may be empty.
        scale: factor from stored value to 0..1.
        settings: settings of the conversion: `reader` and `shard_size`.
        splits: splits by name.
        notes: sentences about values that the conversion changed.
        staged: True for a copy on the node's own disk; not saved.
    """

    folder: Path
    dataset: Name
    format: Literal["hdf5", "npz"]
    inputs: tuple[ArraySpec, ...]
    labels: ArraySpec
    classes: Annotated[int, Field(ge=1, le=MAX_CLASSES)] | None
    first_class: Annotated[int, Field(ge=-(2**53), le=2**53)]
    class_names: tuple[str, ...]
    scale: Annotated[float, Field(gt=0)]
    settings: Mapping[str, Any]
    splits: Mapping[str, SplitInfo]
    notes: tuple[str, ...] = ()
    staged: bool = False

    @property
    def class_labels(self) -> list[str]:
        """Names of the classes, or their numbers if they have no names."""
        return list(self.class_names) or [str(number) for number in range(self.classes or 0)]

    @classmethod
    def load(cls, path: Path) -> "DataManifest":
        """Return the manifest at `path`, a file or folder. Raises UserError if it is missing or damaged."""
        path = path / MANIFEST_FILE if path.is_dir() else path
        try:
            fields = {**json.loads(path.read_text()), "folder": str(path.parent), "staged": False}
            manifest = parse_json(cls, fields)
            check_manifest(manifest)
            return manifest
        except FileNotFoundError as error:
            raise UserError(
                f"{path}: data set not found; convert it, see python scripts/convert.py --help"
            ) from error
        except (OSError, ValueError, TypeError, RecursionError) as error:
            raise UserError(f"{path}: damaged ({error}); remove it and convert the data set again") from error

    def save(self) -> Path:
        """Write `manifest.json` into the folder atomically; return its path."""
        fields = {name: value for name, value in asdict(self).items() if name not in ("folder", "staged")}
        with atomic_write(self.folder / MANIFEST_FILE) as part:
            part.write_text(json.dumps(fields, indent=2) + "\n")
        return self.folder / MANIFEST_FILE

    def verify(self) -> None:
        """Compare the checksum of every shard. Raises UserError with the first shard that differs."""
        for part in self.splits.values():
            for shard in part.shards:
                if file_sha256(self.path(shard)) != shard.sha256:
                    raise self.damaged_shard_error(shard, "the checksum differs from the manifest")

    def path(self, shard: Shard) -> Path:
        """Return the path of a shard. Raises UserError if the file is missing or has a wrong size."""
        path = self.folder / shard.file
        if not path.is_file():
            raise self.damaged_shard_error(shard, "the file is missing")
        # Only the size, because a checksum requires reading the whole file; `verify` compares checksums.
        if path.stat().st_size != shard.bytes:
            raise self.damaged_shard_error(shard, f"{path.stat().st_size:,} bytes instead of {shard.bytes:,}")
        return path

    def damaged_shard_error(self, shard: Shard, reason: str) -> UserError:
        """Return an error with the path of an unreadable shard and the command that restores it."""
        path, reader = self.folder / shard.file, json.dumps(self.settings["reader"])
        if self.staged:
            return UserError(
                f"shard {path} is unreadable ({reason}); remove this staged copy and run again: rm -f {path}"
            )
        return UserError(
            f"shard {path} is unreadable ({reason}); convert it again: rm -f {path}; "
            f"python scripts/convert.py --dataset {self.dataset} --raw {self.folder.parent / 'raw'} "
            f"--target {self.folder} --format {self.format} --shard-size {self.settings['shard_size']}"
            + (f" --reader {quote(reader)}" if self.settings["reader"] else "")
        )


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
