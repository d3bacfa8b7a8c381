"""Conversion of the original files of a data set to a store: its shards, then its manifest."""

import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import prod
from pathlib import Path

import numpy as np

from nnlo_lib.core.atomic_file import atomic_write, file_sha256
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.file_lock import exclusive_lock
from nnlo_lib.core.logging_setup import tracked, write_stderr
from nnlo_lib.core.secrets import mask_settings
from nnlo_lib.core.text_format import plural
from nnlo_lib.data.catalog import DatasetSpec
from nnlo_lib.data.fetch.record import FetchRecord, stamp_of
from nnlo_lib.data.readers.base import ConversionUnit, DatasetContents, SampleBlock
from nnlo_lib.data.source_identity import (
    SourceChecksums,
    describe_unit,
    fetched_identity,
    folder_digest,
    read_contents,
)
from nnlo_lib.data.store.manifest import (
    MANIFEST_FILE,
    MAX_CLASSES,
    SHARD_RECORDS_FOLDER,
    DataManifest,
    Shard,
    ShardRecord,
    SplitInfo,
)
from nnlo_lib.data.store.sample_statistics import non_finite_error, pooled
from nnlo_lib.data.store.shard import SHARD_SUFFIXES, write_shard
from nnlo_lib.data.store_location import CHECKSUMS_FILE, StoreLocation
from nnlo_lib.data.store_settings import ShardFormat, StoreSettings, short_hash

ROUNDS = 3  # conversions of files that change meanwhile, before they are refused
LOCK_FILE = ".lock"
LOCK_TIMEOUT_SECONDS = 86_400.0  # longest wait for another process that converts to the same folder
# Shards, their records and temporary files of both; other files in the folder are not touched.
LEFTOVER = re.compile(r"\.?[a-z]+-\d{5}-of-\d{5}(\.h5|\.npz|\.json)(\..+\.part)?")


@dataclass(frozen=True)
class Conversion:
    """Conversion of the files in `raw` to shards in `target`.

    Attributes:
        raw: folder of the fetched files, with their record; or of other files of the data set.
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

    def missing_units(self) -> Iterator[ConversionUnit]:
        """Yield the units that have no shard of this conversion yet."""
        return (unit for unit in self.contents.units if self.record(unit) is None)

    def refuse_changed_source(self) -> None:
        """Raise UserError if the original files or the user's files no longer give the key of the store."""
        if not self.key:
            return
        record = FetchRecord.load(self.raw)
        if self.dataset.has_fixed_source or record.files:
            identity = fetched_identity(self.dataset, record)
        else:
            checksums = SourceChecksums(self.target.parent / CHECKSUMS_FILE)
            identity = folder_digest(self.settings, self.folder, checksums)
        if self.settings.key(identity) != self.key:
            raise UserError(
                f"{self.folder}: the files, or the code that reads them, changed since the start of the command; run the "
                f"same command again to convert them"
            )

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
        # Last: a shard without a record counts as missing, so that a killed process leaves no wrong shard.
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
        """Raise UserError if the block is empty, or differs from the catalog in shape or classes."""
        if not len(block.labels):
            raise UserError(f"{unit.origin}: no {unit.split} samples found; download or copy the file again")
        wanted, found = self.dataset.shape, block.inputs[0].shape[1:]
        if wanted and found != wanted:
            raise UserError(
                f"{unit.origin.parent}: the {unit.split} samples have the shape {found}, but samples of "
                f"{self.dataset.name} have {wanted}; check data.dataset and data.source"
            )
        # Labels of the places of a sample, such as pixels, are checked by the problem, which knows their classes.
        if block.labels.dtype.kind not in "iu" or block.labels[0].size > 1:
            return
        labels, first = block.labels.reshape(-1), layout.first_class
        classes = self.dataset.classes or len(layout.class_names) or MAX_CLASSES
        for wrong in np.flatnonzero((labels < first) | (labels >= first + classes))[:1]:
            raise UserError(
                f"{unit.locate(int(wrong))} has label {labels[wrong]}, but the classes "
                f"of {self.dataset.name} are {first}..{first + classes - 1}; correct the file, or download or copy it again"
            )


def convert(conversion: Conversion, processes: int = 1) -> DataManifest:
    """Make the missing shards of `conversion` in `processes` processes; write and return the manifest.

    Each process holds one shard in memory. One process converts to a folder at a time; others wait.

    Raises UserError if files are missing or damaged, or change during each of ROUNDS conversions. After an error
    while shards are made, the store has no manifest and cannot be used. The finished shards remain, and the next
    conversion makes only the other shards.
    """
    target = conversion.target
    with exclusive_lock(target / LOCK_FILE, f"converting to {target}", LOCK_TIMEOUT_SECONDS):
        records = _complete_records(conversion, processes)
        manifest = _manifest(conversion, records)
        # Before the manifest, which marks the store as complete.
        _remove_leftover_files(target, [record.shard.file for record in records])
        manifest.save()
    return manifest


def _complete_records(conversion: Conversion, processes: int) -> list[ShardRecord]:
    """Return the records of all shards, in the order of the samples, after making the missing shards."""
    for _ in range(ROUNDS):
        # Files that changed while their shard was made leave an outdated shard, which counts as missing.
        conversion = replace(conversion, code=())
        missing = list(conversion.missing_units())
        if not missing:
            conversion.refuse_changed_source()
            records = map(conversion.record, conversion.contents.units)
            return [record for record in records if record is not None]
        # An interrupted conversion must not leave a manifest that describes shards of another conversion.
        (conversion.target / MANIFEST_FILE).unlink(missing_ok=True)
        _make_all(conversion, missing, processes)
    raise UserError(
        f"{missing[0].origin}: the file changes while it is converted ({len(missing)} of "
        f"{plural(len(conversion.contents.units), 'shard')}, {ROUNDS} times); wait until the files are complete, then run the "
        f"same command again"
    )


def _make_all(conversion: Conversion, units: Sequence[ConversionUnit], processes: int) -> None:
    # A copy without the cached list of all units, because `make` is sent to the processes with every unit.
    make = partial(replace(conversion).convert_unit, conversion.layout)
    shown = partial(tracked, text="converting", total=len(units), unit="shards")
    if processes == 1:
        for record in shown(map(make, units)):
            print_skipped(record)
        return
    with ProcessPoolExecutor(processes) as pool:
        try:
            for record in shown(pool.map(make, units)):
                print_skipped(record)
        except BrokenProcessPool as error:
            raise UserError(
                f"a process converting {conversion.dataset.name} was killed, possibly for lack of memory; run the same "
                f"command with fewer processes to resume, or with a smaller data.shard_size to start again"
            ) from error
        finally:
            # After an error, the `with` statement would otherwise wait until all units are converted.
            pool.shutdown(cancel_futures=True)


def print_skipped(record: ShardRecord) -> None:
    """Print the corrupt records that were left out to stderr."""
    for reason in record.skipped:
        write_stderr(f"{record.shard.file}: skipped {reason}\n")


def _manifest(conversion: Conversion, records: Sequence[ShardRecord]) -> DataManifest:
    """Return the manifest of all records.

    Raises UserError if the arrays of the shards differ in type, or if the first class has no sample.
    """
    contents, first = conversion.contents, records[0]
    shards_of_split: dict[str, list[Shard]] = {}
    for record in records:
        if (record.inputs, record.labels) != (first.inputs, first.labels):
            raise UserError(
                f"{record.shard.file}: the samples are {_layout_text(record)}, but in {first.shard.file} they are "
                f"{_layout_text(first)}; all files of {conversion.dataset.name} must have arrays of the same names, sample "
                f"shapes and types"
            )
        shards_of_split.setdefault(record.split, []).append(record.shard)
    # Of the training samples only.
    of_shards = (record.moments for record in records if record.split == "train")
    moments = map(pooled, zip(*of_shards, strict=True))
    return DataManifest(
        folder=conversion.target,
        dataset=conversion.dataset.name,
        format=conversion.format,
        inputs=tuple(
            replace(column, mean=each.means, std=each.deviations)
            for column, each in zip(first.inputs, moments, strict=True)
        ),
        labels=first.labels,
        classes=_classes(conversion, records),
        first_class=contents.first_class,
        class_names=contents.class_names,
        # Only bytes are scaled; other numbers keep the units of the data set.
        scale=conversion.dataset.scale if any(each.dtype == "uint8" for each in first.inputs) else 1.0,
        notes=contents.notes,
        columns=contents.columns,
        code=dict(zip(conversion.settings.user_files, conversion.code, strict=True)),
        settings={
            "reader": mask_settings(dict(conversion.settings.reader)),
            "shard_size": conversion.settings.shard_size,
        },
        splits={
            split: SplitInfo(sum(shard.samples for shard in shards), tuple(shards))
            for split, shards in shards_of_split.items()
        },
    )


def _layout_text(record: ShardRecord) -> str:
    columns = (*record.inputs, record.labels)
    return ", ".join(f"{column.name} {column.shape} {column.dtype}" for column in columns)


def _classes(conversion: Conversion, records: Sequence[ShardRecord]) -> int | None:
    dataset, contents = conversion.dataset, conversion.contents
    lows = [each.lowest for each in records if each.lowest is not None]
    highs = [each.highest for each in records if each.highest is not None]
    # A sample whose places have labels has no class of its own.
    if not lows or prod(records[0].labels.shape) > 1:
        return None
    lowest, highest, first = min(lows), max(highs), contents.first_class
    named = dataset.classes or len(contents.class_names)
    # Otherwise the classes are counted from the labels; one without a sample before them is a wrong first class.
    if lowest > first and not (named or contents.classes or dataset.generated):
        has_key = "first_class" in conversion.settings.reader
        fix = (
            f"set data.reader.first_class: {lowest} if this is the first class"
            if has_key
            else "count the labels from there"
        )
        raise UserError(f"{dataset.name}: {lowest} is the lowest label, but classes start at {first}; {fix}")
    return named or highest + 1 - first


def _remove_leftover_files(target: Path, files: Sequence[str]) -> None:
    """Remove shards and records of earlier conversions, finished or not, that are not part of this store."""
    stems = {Path(file).with_suffix("") for file in files}
    current = {target / file for file in files} | {
        target / SHARD_RECORDS_FOLDER / f"{stem}.json" for stem in stems
    }
    for path in target.rglob("*"):
        if LEFTOVER.fullmatch(path.name) and path not in current:
            path.unlink()
