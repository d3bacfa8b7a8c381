"""One conversion: the mapping of original files to shards, and the conversion of a single shard."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from nnlo_lib.core.atomic_file import atomic_write
from nnlo_lib.core.errors import UserError
from nnlo_lib.data.catalog import DatasetSpec
from nnlo_lib.data.fetch.record import FetchRecord
from nnlo_lib.data.identity.file_checksum import file_sha256
from nnlo_lib.data.identity.source_checksums import SourceChecksums, stamp_of
from nnlo_lib.data.identity.source_identity import (
    describe_unit,
    fetched_identity,
    folder_digest,
    read_contents,
)
from nnlo_lib.data.identity.store_location import CHECKSUMS_FILE, StoreLocation
from nnlo_lib.data.identity.store_settings import ShardFormat, StoreSettings, short_hash
from nnlo_lib.data.readers import ConversionUnit, DatasetContents, SampleBlock
from nnlo_lib.data.store.manifest import MAX_CLASSES
from nnlo_lib.data.store.non_finite import non_finite_error
from nnlo_lib.data.store.shard import SHARD_SUFFIXES, write_shard
from nnlo_lib.data.store.shard_record import SHARD_RECORDS_FOLDER, ShardRecord


@dataclass(frozen=True)
class Conversion:
    """Conversion of the files in `raw` to shards in `target`.

    Attributes:
        settings: data set, reader and layout of the store.
        raw: folder of the fetched files, with their record; or of other files of the data set.
        target: folder of the store.
        key: key of the store, with which the original files and the user's files must agree; empty: no check.
        code: checksums of the user's files; by default of the files as they are now.
    """

    settings: StoreSettings
    raw: Path
    target: Path
    key: str = ""
    code: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Fix the code's checksums, before the code is loaded."""
        code = self.code or tuple(map(file_sha256, self.settings.user_files))
        object.__setattr__(self, "code", code)

    @classmethod
    def of(cls, store: StoreLocation) -> "Conversion":
        """Return the conversion that makes the store at a location."""
        return cls(store.settings, store.raw, store.folder, store.key)

    @property
    def dataset(self) -> DatasetSpec:
        """Specification of the data set."""
        return self.settings.spec

    @property
    def format(self) -> ShardFormat:
        """Format of the shards."""
        return self.settings.format

    @cached_property
    def folder(self) -> Path:
        """Folder to read the original files from."""
        return FetchRecord.load(self.raw).path

    @cached_property
    def contents(self) -> DatasetContents:
        """Contents of the data set. Raises UserError if files are damaged or there is no training sample."""
        contents = read_contents(self.settings, self.folder)
        if not any(unit.split == "train" for unit in contents.units):
            raise UserError(
                f"{self.folder}: no training samples of {self.dataset.name} found; download or copy the files again"
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

    @property
    def current(self) -> "Conversion":
        """The same conversion of the files and the code as they are now."""
        return replace(self, code=())

    def missing_units(self) -> Iterator[ConversionUnit]:
        """Yield the units that have no shard of this conversion yet."""
        return (unit for unit in self.contents.units if self.record(unit) is None)

    def refuse_changed_source(self) -> None:
        """Raise UserError if the original files or the user's files no longer give the key of the store."""
        if self.key and self.settings.key(self._identity()) != self.key:
            raise UserError(
                f"{self.folder}: the files, or the code that reads them, changed since the start of the command; run the "
                f"same command again to convert them"
            )

    def _identity(self) -> str:
        """Return the identity of the fetched files: of their folder, or of the archive that they come from."""
        record = FetchRecord.load(self.raw)
        if not self.dataset.has_fixed_source and not record.files:
            checksums = SourceChecksums(self.target.parent / CHECKSUMS_FILE)
            return folder_digest(self.settings, self.folder, checksums)
        return fetched_identity(self.dataset, record)

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
        # Before the files are read: if they change meanwhile, the shard is outdated and made again.
        key = self._key(unit)
        block = unit.read()
        self._check(layout, unit, block)
        names = [*layout.inputs, layout.labels]
        file = unit.name + SHARD_SUFFIXES[self.format]
        with atomic_write(self.target / file) as part:
            arrays = dict(zip(names, (*block.inputs, block.labels), strict=True))
            write_shard(part, self.format, arrays)
            record = ShardRecord.from_block(key, unit.split, file, part, block, names)
            if record.shard.non_finite and layout.non_finite == "error":
                raise non_finite_error(unit, arrays)
        # Last: a shard without a record counts as missing, so that a process that is killed here leaves no
        # wrong shard.
        record.save(self._record_path(unit))
        return record

    def _record_path(self, unit: ConversionUnit) -> Path:
        return self.target / SHARD_RECORDS_FOLDER / f"{unit.name}.json"

    def _key(self, unit: ConversionUnit) -> str:
        """Return a hash of the unit's files and the settings; a shard with another key is outdated."""
        folder, settings = self.folder, self.settings
        files = [describe_unit(unit, folder), *map(stamp_of, unit.sources)]
        made_by = [dict(settings.reader), settings.shard_size, settings.format, self.code]
        return short_hash([*made_by, *files])

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
        # Labels of the places of a sample, such as pixels, are checked by the problem, which knows their classes.
        if block.labels.dtype.kind in "iu" and block.labels[0].size == 1:
            self._check_labels(layout, unit, block)

    def _check_labels(self, layout: DatasetContents, unit: ConversionUnit, block: SampleBlock) -> None:
        labels, first = block.labels.reshape(-1), layout.first_class
        classes = self.dataset.classes or len(layout.class_names) or MAX_CLASSES
        for wrong in np.flatnonzero((labels < first) | (labels >= first + classes))[:1]:
            raise UserError(
                f"{unit.locate(int(wrong))} has label {labels[wrong]}, but the classes "
                f"of {self.dataset.name} are {first}..{first + classes - 1}; correct the file, or download or copy it again"
            )
