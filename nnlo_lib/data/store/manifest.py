"""Manifest of a converted data set and its files: `manifest.json`, the last file that a conversion writes."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from nnlo_lib.core.atomic_file import atomic_write
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.json_text import load_json
from nnlo_lib.data.identity.file_checksum import file_sha256
from nnlo_lib.data.identity.store_settings import StoreSettings
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
            fields = {**load_json(path.read_text()), "folder": str(path.parent), "staged": False}
            manifest = parse_json(cls, fields)
            check_manifest(manifest)
            return manifest
        except FileNotFoundError as error:
            raise UserError(
                f"{path}: data set not found; convert the data of the experiment (nnlo run FILE, or snakemake stores "
                f"--configfile FILE)"
            ) from error
        except (OSError, ValueError, TypeError, RecursionError) as error:
            raise UserError(f"{path}: damaged ({error}); remove it and convert the data set again") from error

    def save(self) -> Path:
        """Write `manifest.json` into the folder atomically; return its path."""
        with atomic_write(self.folder / MANIFEST_FILE) as part:
            part.write_text(json.dumps(self._fields, indent=2) + "\n")
        return self.folder / MANIFEST_FILE

    def verify(self) -> None:
        """Compare the checksum of every shard. Raises UserError with the first shard that differs."""
        for part in self.splits.values():
            for shard in part.shards:
                if file_sha256(self.path(shard)) != shard.sha256:
                    raise self.damaged_shard_error(shard, "the checksum differs from the manifest")

    def refuse_other_settings(self, wanted: StoreSettings) -> None:
        """Raise UserError if the store was converted with another data set or reader than `wanted`."""
        made = {"data.dataset": self.dataset, **_flat(self.settings.get("reader", {}))}
        asked = {"data.dataset": wanted.dataset, **_flat(dict(wanted.reader))}
        for key in sorted(made.keys() | asked.keys()):
            if made.get(key) != asked.get(key):
                raise UserError(
                    f"{self.folder / MANIFEST_FILE}: converted with {key}: {_json(made.get(key))}, but the experiment has "
                    f"{_json(asked.get(key))}; convert the data of the experiment (nnlo run FILE, or snakemake stores "
                    f"--configfile FILE)"
                )

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
        path, manifest = self.folder / shard.file, self.folder / MANIFEST_FILE
        if self.staged:
            return UserError(
                f"shard {path} is unreadable ({reason}); remove this staged copy and run again: rm -f {path}"
            )
        return UserError(
            f"shard {path} is unreadable ({reason}); remove it and run the same command again, which converts "
            f"this shard again: rm -f {path} {manifest}"
        )

    @property
    def _fields(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name not in ("folder", "staged")}


def manifest_fingerprint(path: Path) -> str:
    """Return a hash of the samples that a manifest file describes, without the settings of the conversion.

    Raises UserError if the file is damaged.
    """
    try:
        fields = load_json(path.read_text())
        samples = {name: value for name, value in fields.items() if name not in ("settings", "notes")}
    except (OSError, ValueError, AttributeError) as error:
        raise UserError(f"{path}: damaged ({error}); remove it and convert the data set again") from error
    return hashlib.sha256(json.dumps(samples, sort_keys=True).encode()).hexdigest()


def _flat(reader: Any) -> dict[str, Any]:
    options = reader if isinstance(reader, Mapping) else {}
    return {f"data.reader.{key}": value for key, value in options.items()}


def _json(value: Any) -> str:
    return "its default" if value is None else json.dumps(value)
