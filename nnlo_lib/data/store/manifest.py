"""Manifest of a store, `manifest.json`, and the record of each shard.

The manifest is the last file that a conversion writes. Each shard has a record of its own, so that shards can be made
independently. A file that is read can be damaged or written by hand.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from nnlo_lib.core.atomic_file import atomic_write, file_sha256, load_json
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.secrets import mask_settings
from nnlo_lib.data.readers.base import EncodedColumn, SampleBlock
from nnlo_lib.data.store.sample_statistics import ChannelMoments, count_non_finite
from nnlo_lib.data.store_settings import StoreSettings

MANIFEST_FILE = "manifest.json"
SHARD_RECORDS_FOLDER = "shards"
NOT_SAMPLES = ("settings", "notes", "columns", "code")  # fields about the conversion
MAX_CLASSES = 10**7  # the output layer of a model with more classes fits in no memory
Parsed = TypeVar("Parsed")


@dataclass(frozen=True)
class Shard:
    """One file of the store; `skipped` corrupt records were left out of it."""

    file: Annotated[str, Field(pattern=r"^[^./][^/]*(/[^./][^/]*)*$")]  # a path below the folder of the store
    samples: int
    bytes: int
    sha256: str
    skipped: int = 0
    non_finite: int = 0


@dataclass(frozen=True)
class ArraySpec:
    """One array that every sample has: its name in the shards, the shape of a sample and the stored dtype.

    `mean` and `std` are computed over the finite values of the training samples for each channel (first axis),
    in stored units.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()


# In the shards of a table with `data.reader.weight`, behind inputs and labels.
WEIGHTS = ArraySpec("weights", (), "float64")


@dataclass(frozen=True)
class SplitInfo:
    """One split: its number of samples, and its shards in the order of the samples."""

    samples: int
    shards: tuple[Shard, ...]


@dataclass(frozen=True)
class DataManifest:
    """A data set in the store."""

    folder: Path  # folder of the store; not saved, so that a store can be moved
    dataset: str
    format: Literal["hdf5", "npz"]
    inputs: tuple[ArraySpec, ...]
    labels: ArraySpec
    classes: int | None  # number of classes; None if labels are not classes
    first_class: int  # number of the first class in the shards
    class_names: tuple[str, ...]
    scale: float
    settings: Mapping[str, Any]  # settings of the conversion: `reader` and `shard_size`
    splits: Mapping[str, SplitInfo]
    notes: tuple[str, ...] = ()
    staged: bool = False  # True for a copy on the node's own disk; not saved
    # columns of a table in the order of the inputs; empty for other data
    columns: tuple[EncodedColumn, ...] = ()
    # SHA-256 of the user's files that read or adapted the samples, by path
    code: Mapping[str, str] = field(default_factory=dict)

    @property
    def left_out(self) -> tuple[str, ...]:
        """Sentences about values that the conversion changed and files or records that it left out."""
        skipped = sum(shard.skipped for part in self.splits.values() for shard in part.shards)
        return (*self.notes, *([f"{skipped:,} corrupt records are left out"] if skipped else []))

    @property
    def weights(self) -> tuple[ArraySpec, ...]:
        """The array of the weights; empty if the samples have none."""
        return (WEIGHTS,) if "weight" in self.settings.get("reader", {}) else ()

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
            return parse_json(cls, fields)
        except FileNotFoundError as error:
            raise UserError(
                f"{path}: data set not found; convert the data of the experiment: nnlo data FILE"
            ) from error
        except (OSError, ValueError, TypeError, RecursionError) as error:
            raise UserError(f"{path}: damaged ({error}); remove it and convert the data set again") from error

    def save(self) -> None:
        """Write `manifest.json` into the folder atomically."""
        fields = {name: value for name, value in asdict(self).items() if name not in ("folder", "staged")}
        with atomic_write(self.folder / MANIFEST_FILE) as part:
            part.write_text(json.dumps(fields, indent=2) + "\n")

    def verify(self) -> None:
        """Compare the checksum of every shard. Raises UserError with the first shard that differs."""
        for part in self.splits.values():
            for shard in part.shards:
                if file_sha256(self.path(shard)) != shard.sha256:
                    raise self.damaged_shard_error(shard, "the checksum differs from the manifest")

    def refuse_other_settings(self, wanted: StoreSettings) -> None:
        """Raise UserError if the store was converted with another data set or reader than `wanted`."""
        made, asked = (
            {
                "data.dataset": dataset,
                **{f"data.reader.{key}": value for key, value in mask_settings(dict(reader)).items()},
            }
            for dataset, reader in ((self.dataset, self.settings["reader"]), (wanted.dataset, wanted.reader))
        )
        for key in sorted(made.keys() | asked.keys()):
            if made.get(key) != asked.get(key):
                before, now = (
                    json.dumps(each[key]) if key in each else "its default" for each in (made, asked)
                )
                raise UserError(
                    f"{self.folder / MANIFEST_FILE}: converted with {key}: {before}, but the experiment has {now}; convert the "
                    f"data of the experiment: nnlo data FILE"
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
        remedy = (
            f"remove this staged copy and run again: rm -f {path}"
            if self.staged
            else f"remove it and run the same command again, which converts this shard again: rm -f {path} {manifest}"
        )
        return UserError(f"shard {path} is unreadable ({reason}); {remedy}")


def manifest_fingerprint(path: Path) -> str:
    """Return a hash of the samples that a manifest file describes, without the settings of the conversion.

    Raises UserError if the file is damaged.
    """
    try:
        fields = load_json(path.read_text())
        samples = {name: value for name, value in fields.items() if name not in NOT_SAMPLES}
    except (OSError, ValueError, AttributeError) as error:
        raise UserError(f"{path}: damaged ({error}); remove it and convert the data set again") from error
    return hashlib.sha256(json.dumps(samples, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class ShardRecord:
    """One converted shard."""

    key: str
    split: str
    shard: Shard
    inputs: tuple[ArraySpec, ...]
    labels: ArraySpec
    lowest: int | None
    highest: int | None
    moments: tuple[ChannelMoments, ...]  # mean and squared deviations for each input
    skipped: tuple[str, ...]  # name and reason of each corrupt record that was left out

    @classmethod
    def from_block(
        cls, key: str, split: str, file: str, path: Path, block: SampleBlock, names: Sequence[str]
    ) -> "ShardRecord":
        """Return the record of a block that was written to `path`, which may have a temporary name.

        `names` are of the inputs, then of the labels.
        """
        *inputs, labels = (
            ArraySpec(name, array.shape[1:], array.dtype.name)
            for name, array in zip(names, (*block.inputs, block.labels), strict=True)
        )
        moments = tuple(ChannelMoments.of(array) for array in block.inputs)
        finite = sum(sum(each.counts) for each in moments)
        non_finite = sum(array.size for array in block.inputs) - finite + count_non_finite(block.labels)
        shard = Shard(
            file, len(block.labels), path.stat().st_size, file_sha256(path), len(block.skipped), non_finite
        )
        whole = block.labels.dtype.kind in "iu"
        lowest, highest = (int(block.labels.min()), int(block.labels.max())) if whole else (None, None)
        return cls(key, split, shard, tuple(inputs), labels, lowest, highest, moments, block.skipped)

    @classmethod
    def load(cls, path: Path) -> "ShardRecord | None":
        """Return the record, or None if it is missing or damaged; the shard is then made again."""
        try:
            return parse_json(cls, load_json(path.read_text()))
        except (OSError, ValueError, TypeError, RecursionError):
            return None

    def save(self, path: Path) -> None:
        """Write the record atomically."""
        with atomic_write(path) as part:
            part.write_text(json.dumps(asdict(self)) + "\n")


def parse_json(kind: type[Parsed], fields: dict[str, Any]) -> Parsed:
    """Return the dataclass of its JSON form. Raises ValueError that names the field of a wrong type."""
    try:
        # As JSON text: only then does strict validation accept a list as a tuple.
        return TypeAdapter(kind).validate_json(json.dumps(fields), strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(each) for each in first["loc"])
        raise ValueError(f"{place}: {first['msg']}, not {json.dumps(first['input'])[:80]}") from error
