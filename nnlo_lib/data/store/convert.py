"""Conversion of the original files of a data set to a store: its shards, then its manifest."""

import re
from collections.abc import Sequence
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
from nnlo_lib.data.fetch.record import FetchRecord, stamp_of
from nnlo_lib.data.readers.base import ConversionUnit, DatasetContents, SampleBlock
from nnlo_lib.data.source_identity import (
    SourceChecksums,
    describe_unit,
    fetched_identity,
    read_contents,
)
from nnlo_lib.data.store.manifest import (
    MANIFEST_FILE,
    MAX_CLASSES,
    SHARD_RECORDS_FOLDER,
    WEIGHTS,
    DataManifest,
    ShardRecord,
    SplitInfo,
)
from nnlo_lib.data.store.sample_statistics import non_finite_error, pooled
from nnlo_lib.data.store.shard import SHARD_SUFFIXES, write_shard
from nnlo_lib.data.store_location import CHECKSUMS_FILE
from nnlo_lib.data.store_settings import StoreSettings, short_hash

ROUNDS = 3  # conversions of files that change meanwhile, before they are refused
LOCK_FILE = ".lock"
LOCK_TIMEOUT_SECONDS = 86_400.0  # longest wait for another process that converts to the same folder
# Shards, their records and temporary files of both; other files in the folder are not touched.
LEFTOVER = re.compile(r"\.?[a-z]+-\d{5}-of-\d{5}(\.h5|\.npz|\.json)(\..+\.part)?")


@dataclass(frozen=True)
class Conversion:
    """Conversion of the files in `raw` to shards in `target`."""

    settings: StoreSettings
    raw: Path  # folder of the fetched files, with their record; or of other files of the data set
    target: Path
    # key of the store, with which the original files and the user's files must agree; empty: no check
    key: str = ""
    code: tuple[str, ...] = ()  # checksums of the user's files; by default of the files as they are now

    def __post_init__(self) -> None:
        """Fix the code's checksums, before the code is loaded."""
        code = self.code or tuple(map(file_sha256, self.settings.user_files))
        object.__setattr__(self, "code", code)

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
                f"{self.folder}: no training samples of {self.settings.spec.name} found; download or copy the files again"
            )
        return contents

    def unit(self, name: str) -> ConversionUnit:
        """Return the unit called `name`. Raises UserError if it does not exist."""
        for unit in self.contents.units:
            if unit.name == name:
                return unit
        raise UserError(
            f"{self.raw}: data set {self.settings.spec.name} has no shard {name}; check --shard, or restore removed files"
        )

    def refuse_changed_source(self) -> None:
        """Raise UserError if the original files or the user's files no longer give the key of the store."""
        if not self.key:
            return
        checksums = SourceChecksums(self.target.parent / CHECKSUMS_FILE)
        if (
            self.settings.key(fetched_identity(self.settings, FetchRecord.load(self.raw), checksums))
            != self.key
        ):
            raise UserError(
                f"{self.folder}: the files, or the code that reads them, changed since the start of the command; run the "
                f"same command again to convert them"
            )

    def record(self, unit: ConversionUnit) -> ShardRecord | None:
        """Return the record of the unit's shard, or None if the shard is missing, incomplete or outdated."""
        record = ShardRecord.load(self.record_path(unit))
        if record is None or record.key != self._key(unit):
            return None
        path = self.target / record.shard.file
        return record if path.is_file() and path.stat().st_size == record.shard.bytes else None

    @property
    def layout(self) -> DatasetContents:
        """Contents without the units: the part needed to make a shard, small enough to send to worker processes."""
        return replace(self.contents, units=())

    def convert_unit(self, layout: DatasetContents, unit: ConversionUnit) -> None:
        """Read one unit and write its shard, then its record; print the corrupt records that are left out.

        Raises UserError if the samples are invalid.
        """
        # Before the files are read: if they change meanwhile, the shard is outdated and made again.
        key = self._key(unit)
        block = unit.read()
        self._check(layout, unit, block)
        names = [*layout.inputs, layout.labels]
        file = unit.name + SHARD_SUFFIXES[self.settings.format]
        with atomic_write(self.target / file) as part:
            arrays = dict(zip(names, (*block.inputs, block.labels), strict=True))
            if block.weights is not None:
                arrays[WEIGHTS.name] = block.weights
            write_shard(part, self.settings.format, arrays)
            record = ShardRecord.from_block(key, unit.split, file, part, block, names)
            if record.shard.non_finite and layout.non_finite == "error":
                raise non_finite_error(unit, arrays)
        # Last: a shard without a record counts as missing, so that a killed process leaves no wrong shard.
        record.save(self.record_path(unit))
        for reason in block.skipped:
            write_stderr(f"{file}: skipped {reason}\n")

    def record_path(self, unit: ConversionUnit) -> Path:
        """Return the path of the record of the unit's shard."""
        return self.target / SHARD_RECORDS_FOLDER / f"{unit.name}.json"

    def _key(self, unit: ConversionUnit) -> str:
        """Return a hash of the unit's files and the settings; a shard with another key is outdated."""
        made_by = [dict(self.settings.reader), self.settings.shard_size, self.settings.format, self.code]
        return short_hash([*made_by, describe_unit(unit, self.folder), *map(stamp_of, unit.sources)])

    def _check(self, layout: DatasetContents, unit: ConversionUnit, block: SampleBlock) -> None:
        """Raise UserError if the block is empty, or differs from the catalog in shape or classes."""
        if not len(block.labels):
            raise UserError(f"{unit.origin}: no {unit.split} samples found; download or copy the file again")
        wanted, found = self.settings.spec.shape, block.inputs[0].shape[1:]
        if wanted and found != wanted:
            raise UserError(
                f"{unit.origin.parent}: the {unit.split} samples have the shape {found}, but samples of "
                f"{self.settings.spec.name} have {wanted}; check data.dataset and data.source"
            )
        # Labels of the places of a sample, such as pixels, are checked by the problem, which knows their classes.
        if block.labels.dtype.kind not in "iu" or block.labels[0].size > 1:
            return
        labels, first = block.labels.reshape(-1), layout.first_class
        classes = self.settings.spec.classes or len(layout.class_names) or MAX_CLASSES
        for wrong in np.flatnonzero((labels < first) | (labels >= first + classes))[:1]:
            raise UserError(
                f"{unit.locate(int(wrong))} has label {labels[wrong]}, but the classes "
                f"of {self.settings.spec.name} are {first}..{first + classes - 1}; correct the file, or download or copy it again"
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
        # Before the manifest, which marks the store as complete: shards and records of earlier conversions, finished or not.
        units, suffix = conversion.contents.units, SHARD_SUFFIXES[conversion.settings.format]
        current = {target / f"{unit.name}{suffix}" for unit in units} | set(
            map(conversion.record_path, units)
        )
        for path in target.rglob("*"):
            if LEFTOVER.fullmatch(path.name) and path not in current:
                path.unlink()
        manifest.save()
    return manifest


def _complete_records(conversion: Conversion, processes: int) -> list[ShardRecord]:
    """Return the records of all shards, in the order of the samples, after making the missing shards."""
    for _ in range(ROUNDS):
        # Files that changed while their shard was made leave an outdated shard, which counts as missing.
        conversion = replace(conversion, code=())
        records = [(unit, conversion.record(unit)) for unit in conversion.contents.units]
        missing = [unit for unit, record in records if record is None]
        if not missing:
            conversion.refuse_changed_source()
            return [record for _, record in records if record is not None]
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
        list(shown(map(make, units)))
        return
    with ProcessPoolExecutor(processes) as pool:
        try:
            list(shown(pool.map(make, units)))
        except BrokenProcessPool as error:
            raise UserError(
                f"a process converting {conversion.settings.spec.name} was killed, possibly for lack of memory; run the same "
                f"command with fewer processes to resume, or with a smaller data.shard_size to start again"
            ) from error
        finally:
            # After an error, the `with` statement would otherwise wait until all units are converted.
            pool.shutdown(cancel_futures=True)


def _manifest(conversion: Conversion, records: Sequence[ShardRecord]) -> DataManifest:
    """Return the manifest of all records.

    Raises UserError if the arrays of the shards differ in type, or if the first class has no sample.
    """
    settings, contents, first = conversion.settings, conversion.contents, records[0]
    for record in records:
        if (record.inputs, record.labels) != (first.inputs, first.labels):
            found, expected = (
                ", ".join(
                    f"{column.name} {column.shape} {column.dtype}" for column in (*each.inputs, each.labels)
                )
                for each in (record, first)
            )
            raise UserError(
                f"{record.shard.file}: the samples are {found}, but in {first.shard.file} they are {expected}; all files of "
                f"{settings.spec.name} must have arrays of the same names, sample shapes and types"
            )
    shards = {
        split: [record.shard for record in records if record.split == split]
        for split in dict.fromkeys(record.split for record in records)
    }
    # Of the training samples only.
    of_shards = (record.moments for record in records if record.split == "train")
    moments = map(pooled, zip(*of_shards, strict=True))
    return DataManifest(
        folder=conversion.target,
        dataset=settings.spec.name,
        format=settings.format,
        inputs=tuple(
            replace(column, mean=each.means, std=each.deviations)
            for column, each in zip(first.inputs, moments, strict=True)
        ),
        labels=first.labels,
        classes=_classes(conversion, records),
        first_class=contents.first_class,
        class_names=contents.class_names,
        # Only bytes are scaled; other numbers keep the units of the data set.
        scale=settings.spec.scale if any(each.dtype == "uint8" for each in first.inputs) else 1.0,
        notes=contents.notes,
        columns=contents.columns,
        code=dict(zip(settings.user_files, conversion.code, strict=True)),
        settings={"reader": mask_settings(dict(settings.reader)), "shard_size": settings.shard_size},
        splits={
            split: SplitInfo(sum(shard.samples for shard in each), tuple(each))
            for split, each in shards.items()
        },
    )


def _classes(conversion: Conversion, records: Sequence[ShardRecord]) -> int | None:
    dataset, contents = conversion.settings.spec, conversion.contents
    ranges = [
        (each.lowest, each.highest)
        for each in records
        if each.lowest is not None and each.highest is not None
    ]
    # A sample whose places have labels has no class of its own.
    if not ranges or prod(records[0].labels.shape) > 1:
        return None
    first, lowest, highest = (
        contents.first_class,
        min(low for low, _ in ranges),
        max(high for _, high in ranges),
    )
    named = dataset.classes or len(contents.class_names)
    # Otherwise the classes are counted from the labels; one without a sample before them is a wrong first class.
    if lowest > first and not (named or contents.classes or dataset.generated):
        has_key = "first_class" in conversion.settings.reader
        key = f"set data.reader.first_class: {lowest} if this is the first class"
        fix = key if has_key else "count the labels from there"
        raise UserError(f"{dataset.name}: {lowest} is the lowest label, but classes start at {first}; {fix}")
    return named or highest + 1 - first
