"""One conversion: the mapping of original files to shards, and the conversion of a single shard."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from nnlo_lib.core.atomic_file import atomic_write
from nnlo_lib.core.errors import UserError
from nnlo_lib.data.catalog import CATALOG, DatasetSpec, find_dataset, user_dataset
from nnlo_lib.data.fetch.record import FETCH_RECORD_FILE, FetchRecord
from nnlo_lib.data.readers import ConversionUnit, DatasetContents, SampleBlock, read
from nnlo_lib.data.store.manifest import MAX_CLASSES, file_sha256
from nnlo_lib.data.store.non_finite import non_finite_error
from nnlo_lib.data.store.shard import SHARD_SUFFIXES, ShardFormat, write_shard
from nnlo_lib.data.store.shard_record import SHARD_RECORDS_FOLDER, ShardRecord


@dataclass(frozen=True)
class Conversion:
    """Conversion of the files in `raw` to shards of up to `shard_size` samples in `target`.

    `reader` has the name and options of the reader from the experiment. If it is empty, the reader of the
    catalog is used without options.
    """

    dataset: DatasetSpec
    raw: Path
    target: Path
    format: ShardFormat
    shard_size: int
    reader: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_settings(
        cls,
        name: str,
        reader: Mapping[str, Any] | None,
        raw: Path,
        target: Path,
        format: ShardFormat,
        shard_size: int,
    ) -> "Conversion":
        """Return the conversion of a catalog data set, or else of the user's data set with this `reader`.

        Args:
            name: name of the data set.
            reader: name and options of the reader; None: the reader of the catalog.
            raw: folder of the fetched files.
            target: folder of the store.
            format: format of the shards.
            shard_size: maximum number of samples per shard.
        """
        dataset = user_dataset(name, reader["name"]) if reader and name not in CATALOG else find_dataset(name)
        return cls(dataset, raw, target, format, shard_size, reader or {})

    @property
    def options(self) -> dict[str, Any]:
        """Keyword arguments of the reader."""
        options = {key: value for key, value in self.reader.items() if key not in ("name", "args")}
        # The options of a user's reader are in `args`.
        return {**options, **self.reader.get("args", {})}

    @cached_property
    def contents(self) -> DatasetContents:
        """Contents of the data set. Raises UserError if files are damaged or there is no training sample."""
        if self.shard_size < 1:
            raise UserError(f"data.shard_size: must be at least 1, not {self.shard_size}")
        folder = FetchRecord.load(self.raw).path
        contents = read(self.dataset.reader, folder, self.shard_size, self.options)
        if not any(unit.split == "train" for unit in contents.units):
            raise UserError(
                f"{folder}: no training samples of {self.dataset.name} found; download or copy the files again"
            )
        return contents

    def unit(self, name: str) -> ConversionUnit:
        """Return the unit called `name`. Raises UserError if it does not exist."""
        for unit in self.contents.units:
            if unit.name == name:
                return unit
        raise UserError(
            f"{self.raw}: data set {self.dataset.name} has no shard {name}; check --shard, or restore removed files"
        )

    def missing_units(self) -> Iterator[ConversionUnit]:
        """Yield the units that have no shard of this conversion yet."""
        return (unit for unit in self.contents.units if self.record(unit) is None)

    def record(self, unit: ConversionUnit) -> ShardRecord | None:
        """Return the record of the unit's shard, or None if the shard is missing, incomplete or outdated."""
        record = ShardRecord.load(self._record_path(unit))
        if record is None or record.key != self._key(unit):
            return None
        path = self.target / record.shard.file
        return record if path.is_file() and path.stat().st_size == record.shard.bytes else None

    @property
    def layout(self) -> DatasetContents:
        """Contents without the units: the part needed to make a shard, small enough to send to worker processes."""
        return replace(self.contents, units=())

    def convert_unit(self, layout: DatasetContents, unit: ConversionUnit) -> ShardRecord:
        """Read one unit and write its shard, then its record. Raises UserError if the samples are invalid."""
        block = unit.read()
        self._check(layout, unit, block)
        names = [*layout.inputs, layout.labels]
        file = unit.name + SHARD_SUFFIXES[self.format]
        with atomic_write(self.target / file) as part:
            arrays = dict(zip(names, (*block.inputs, block.labels), strict=True))
            write_shard(part, self.format, arrays)
            record = ShardRecord.from_block(self._key(unit), unit.split, file, part, block, names)
            if record.shard.non_finite and layout.non_finite == "error":
                raise non_finite_error(unit, arrays)
        # Last: a shard without a record counts as missing, so that a process that is killed here leaves no
        # wrong shard.
        record.save(self._record_path(unit))
        return record

    def _record_path(self, unit: ConversionUnit) -> Path:
        return self.target / SHARD_RECORDS_FOLDER / f"{unit.name}.json"

    def _key(self, unit: ConversionUnit) -> str:
        """Return a hash of the original files and the settings; a shard with another key is outdated."""
        fetched, origin = self.raw / FETCH_RECORD_FILE, unit.origin.stat()
        # The time distinguishes files that were fetched again, even if their record is equal.
        source = [fetched.stat().st_mtime_ns, fetched.read_text()] if fetched.exists() else []
        settings = [self.dataset.reader, self.options, self.shard_size, self.format]
        if code := self.dataset.reader.rpartition(":")[0]:  # the file of the user's reader
            settings.append(file_sha256(Path(code)))
        text = json.dumps([source, settings, unit.name, origin.st_size, origin.st_mtime_ns], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def _check(self, layout: DatasetContents, unit: ConversionUnit, block: SampleBlock) -> None:
        """Raise UserError if the block is empty, or differs from the catalog in shape or classes.

        Args:
            layout: contents of the data set, without its units.
            unit: unit that was read, for error messages.
            block: samples of the unit.
        """
        if not len(block.labels):
            raise UserError(f"{unit.origin}: no {unit.split} samples found; download or copy the file again")
        wanted, found = self.dataset.shape, block.inputs[0].shape[1:]
        if wanted and found != wanted:
            raise UserError(
                f"{unit.origin.parent}: the {unit.split} samples have the shape {found}, but samples of "
                f"{self.dataset.name} have {wanted}; check data.dataset and data.source"
            )
        if block.labels.dtype.kind in "iu":
            self._check_labels(layout, unit, block)

    def _check_labels(self, layout: DatasetContents, unit: ConversionUnit, block: SampleBlock) -> None:
        labels, first = block.labels.reshape(-1), layout.first_class
        classes = self.dataset.classes or len(layout.class_names) or MAX_CLASSES
        for wrong in np.flatnonzero((labels < first) | (labels >= first + classes))[:1]:
            raise UserError(
                f"{unit.locate(int(wrong))} has label {labels[wrong]}, but the classes "
                f"of {self.dataset.name} are {first}..{first + classes - 1}; correct the file, or download or copy it again"
            )
