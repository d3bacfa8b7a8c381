"""Conversion of a data set to the store: shards of one layout and a manifest."""

import re
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

from nnlo_lib.core.errors import UserError
from nnlo_lib.core.file_lock import exclusive_lock
from nnlo_lib.data.catalog import DatasetSpec
from nnlo_lib.data.readers import ConversionUnit, DatasetContents
from nnlo_lib.data.store.channel_moments import pooled
from nnlo_lib.data.store.conversion import Conversion
from nnlo_lib.data.store.manifest import MANIFEST_FILE, ArraySpec, DataManifest, SplitInfo
from nnlo_lib.data.store.shard_record import SHARD_RECORDS_FOLDER, ShardRecord

# Shards, their records and temporary files of both; other files in the folder are not touched.
ROUNDS = 3  # conversions of files that change meanwhile, before they are refused
LOCK_FILE = ".lock"
LOCK_TIMEOUT_SECONDS = 86_400.0  # longest wait for another process that converts to the same folder
LEFTOVER = re.compile(r"\.?[a-z]+-\d{5}-of-\d{5}(\.h5|\.npz|\.json)(\..+\.part)?")


def convert(conversion: Conversion, processes: int = 1) -> DataManifest:
    """Make the missing shards of `conversion` in `processes` processes; write and return the manifest.

    Each process holds one shard in memory. One process converts to a folder at a time; others wait.

    Raises:
        UserError: if files are missing or damaged, or change during each of ROUNDS conversions. After an error
            while shards are made, the store has no manifest and cannot be used. The finished shards remain,
            and the next conversion makes only the other shards.
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
        conversion = conversion.current
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
        f"{len(conversion.contents.units)} shards, {ROUNDS} times); wait until the files are complete, then run the "
        f"same command again"
    )


def _make_all(conversion: Conversion, units: Sequence[ConversionUnit], processes: int) -> None:
    # A copy without the cached list of all units, because `make` is sent to the processes with every unit.
    make = partial(replace(conversion).convert_unit, conversion.layout)
    if processes == 1:
        for unit in _shown(units, len(units)):
            print_skipped(make(unit))
        return
    with ProcessPoolExecutor(processes) as pool:
        try:
            for record in _shown(pool.map(make, units), len(units)):
                print_skipped(record)
        except BrokenProcessPool as error:
            raise UserError(
                f"a process converting {conversion.dataset.name} was killed, possibly for lack of memory; run the same "
                f"command with fewer processes to resume, or with a smaller data.shard_size to start again"
            ) from error
        finally:
            # After an error, the `with` statement would otherwise wait until all remaining units are
            # converted.
            pool.shutdown(cancel_futures=True)


def print_skipped(record: ShardRecord) -> None:
    """Print the corrupt records that were left out to stderr."""
    for reason in record.skipped:
        print(f"{record.shard.file}: skipped {reason}", file=sys.stderr)


def _shown(each: Iterable[Any], total: int) -> Iterable[Any]:
    """Wrap the iterable in a progress bar that is shown only on a terminal."""
    from tqdm import tqdm

    return tqdm(each, total=total, unit="shard", disable=None, leave=False)


def _manifest(conversion: Conversion, records: Sequence[ShardRecord]) -> DataManifest:
    """Return the manifest of all records. Raises UserError if the arrays of the shards differ in type."""
    contents, first = conversion.contents, records[0]
    for record in records:
        if (record.inputs, record.labels) != (first.inputs, first.labels):
            raise UserError(
                f"{record.shard.file}: the samples are {_layout_text(record)}, but in {first.shard.file} they are "
                f"{_layout_text(first)}; all files of {conversion.dataset.name} must have arrays of the same names, sample "
                f"shapes and types"
            )
    return DataManifest(
        folder=conversion.target,
        dataset=conversion.dataset.name,
        format=conversion.format,
        inputs=_columns([record for record in records if record.split == "train"]),
        labels=first.labels,
        classes=_classes(conversion.dataset, contents, records),
        first_class=contents.first_class,
        class_names=contents.class_names,
        # Only bytes are scaled; other numbers keep the units of the data set.
        scale=conversion.dataset.scale if any(each.dtype == "uint8" for each in first.inputs) else 1.0,
        notes=contents.notes,
        settings={"reader": dict(conversion.settings.reader), "shard_size": conversion.settings.shard_size},
        splits={split: _part(records, split) for split in dict.fromkeys(record.split for record in records)},
    )


def _layout_text(record: ShardRecord) -> str:
    columns = (*record.inputs, record.labels)
    return ", ".join(f"{column.name} {column.shape} {column.dtype}" for column in columns)


def _columns(train: Sequence[ShardRecord]) -> tuple[ArraySpec, ...]:
    """Return the inputs with mean and standard deviation over the training samples."""
    moments = (pooled(each) for each in zip(*(record.moments for record in train), strict=True))
    return tuple(
        replace(column, mean=each.means, std=each.deviations)
        for column, each in zip(train[0].inputs, moments, strict=True)
    )


def _classes(dataset: DatasetSpec, contents: DatasetContents, records: Sequence[ShardRecord]) -> int | None:
    highest = [record.highest for record in records if record.highest is not None]
    # A sample whose places have labels has no class of its own.
    if not highest or prod(records[0].labels.shape) > 1:
        return None
    return dataset.classes or len(contents.class_names) or max(highest) + 1 - contents.first_class


def _part(records: Sequence[ShardRecord], split: str) -> SplitInfo:
    shards = tuple(record.shard for record in records if record.split == split)
    return SplitInfo(sum(shard.samples for shard in shards), shards)


def _remove_leftover_files(target: Path, files: Sequence[str]) -> None:
    """Remove shards and records of earlier conversions, finished or not, that are not part of this store."""
    stems = {Path(file).with_suffix("") for file in files}
    current = {target / file for file in files} | {
        target / SHARD_RECORDS_FOLDER / f"{stem}.json" for stem in stems
    }
    for path in target.rglob("*"):
        if LEFTOVER.fullmatch(path.name) and path not in current:
            path.unlink()
