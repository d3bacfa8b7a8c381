"""Description of a store as text, and the list and removal of the folders below data/.

The text has tables of the samples per class and split, and per worker and class.
"""

import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from textwrap import shorten
from typing import Any

import numpy as np

from nnlo_lib.core.errors import UserError
from nnlo_lib.core.file_lock import exclusive_lock
from nnlo_lib.core.text_format import plural, sample_shape_text, size_text, table_lines
from nnlo_lib.data.fetch.record import FETCH_RECORD_FILE, tree_size
from nnlo_lib.data.readers.base import Array, Indices
from nnlo_lib.data.store.convert import LOCK_FILE
from nnlo_lib.data.store.manifest import MANIFEST_FILE, ArraySpec, DataManifest
from nnlo_lib.data.store.split import Split
from nnlo_lib.data.store_location import DATA_FOLDER, RAW_FOLDER

ROWS = 24  # maximum rows of a table; a longer table is shortened in the middle
CLASSES = 12  # maximum number of classes that get one column each
HEADING, MAX_CLASS_NAME_CHARS = 10, 40  # limits of a class name's length: above a column, and in a row
CHANNELS = 4  # maximum number of channels for which each mean and deviation is listed
LISTED = 4  # maximum number of shards with corrupt records, or of empty classes, that are listed
FOLDERS = re.compile(r"(raw|hdf5|npz)(-[0-9a-f]{12})?")  # stores of version 0.1 have no key
Column = tuple[str, Any]  # heading, and a sequence or an array of texts or counts


def describe(manifest: DataManifest, partitions: Mapping[str, Sequence[Indices]]) -> str:
    """Return a description of a data set: its files, its arrays, and tables of its samples.

    Samples are counted per class and split, and per worker and class. `partitions` maps the name of a run to
    the training samples of each worker; all workers share a single part. Raises UserError if a shard is
    unreadable.
    """
    labels = {name: Split(manifest, name).labels for name in manifest.splits}
    if manifest.classes is None:
        samples = "\n".join(
            f"labels of {name}: {each.min():.4g} to {each.max():.4g}, mean {each.mean():.4g}"
            for name, each in labels.items()
        )
    else:
        samples = _samples_by_class(manifest, labels)
    workers = (_workers(manifest, run, parts, labels["train"]) for run, parts in partitions.items())
    return "\n\n".join(["\n".join(_facts(manifest)), samples, *workers])


def _facts(manifest: DataManifest) -> Iterator[str]:
    def column_text(column: ArraySpec) -> str:
        return f"{column.name}: {sample_shape_text(column.shape)}, {column.dtype}"

    shards = [shard for part in manifest.splits.values() for shard in part.shards]
    size = size_text(sum(shard.bytes for shard in shards))
    yield f"data set  {manifest.dataset}"
    yield f"samples   {', '.join(f'{name} {part.samples:,}' for name, part in manifest.splits.items())}"
    yield f"store     {manifest.folder}: {manifest.format}, {size} in {plural(len(shards), 'shard')}"
    for column in manifest.inputs:
        yield f"input     {column_text(column)}{_moments(column, manifest.scale)}"
    classes = "" if manifest.classes is None else f", {manifest.classes:,} classes"
    yield f"labels    {column_text(manifest.labels)}{classes}"
    for note in manifest.notes:
        yield f"note      {note}"
    if skipped := [f"{shard.skipped:,} in {shard.file}" for shard in shards if shard.skipped]:
        yield f"skipped   corrupt records: {_listed(skipped)}"
    if non_finite := [f"{shard.non_finite:,} in {shard.file}" for shard in shards if shard.non_finite]:
        yield f"values    NaN or infinite: {_listed(non_finite)}"


def _listed(texts: Sequence[str]) -> str:
    """Return the first LISTED texts, and how many follow."""
    return ", ".join(texts[:LISTED]) + (f" and {len(texts) - LISTED:,} more" if len(texts) > LISTED else "")


def _moments(column: ArraySpec, scale: float) -> str:
    """Return mean and standard deviation of each channel, for the values after `normalize: unit`."""
    factor = scale if column.dtype == "uint8" else 1.0
    statistics = [
        f"{label} " + (" ".join(values) if len(values) <= CHANNELS else f"{values[0]} ... {values[-1]}")
        for label, moments in (("mean", column.mean), ("deviation", column.std))
        if (values := [f"{moment * factor:.4g}" for moment in moments])
    ]
    unit = f" (in 0..1: bytes / {1 / scale:.4g})" if statistics and factor != 1 else ""
    return ", ".join(["", *statistics]) + unit


def _samples_by_class(manifest: DataManifest, labels: Mapping[str, Array]) -> str:
    """Return a table of the samples per class and split; `labels` has the class of each sample by split."""
    counts = {name: _count(manifest, each) for name, each in labels.items()}
    names = [_short(name) for name in manifest.class_names]
    numbers = [str(number) for number in range(len(manifest.class_labels))]
    columns: list[Column] = [("class", numbers), *([("name", names)] if names else []), *counts.items()]
    summary = _range_summary("training samples per class", counts["train"])
    if empty := [numbers[number] for number in np.flatnonzero(counts["train"] == 0)]:
        summary += f"\nnote: classes without a training sample: {_listed(empty)}"
    return f"{_text(columns, left=(1,) if names else ())}\n{summary}"


def _workers(manifest: DataManifest, run: str, parts: Sequence[Indices], labels: Array) -> str:
    """Return the number of samples of each worker in a run, or a note that all workers share one order.

    The table of classes has a column per class for up to CLASSES classes, otherwise the most frequent class per worker.
    """
    samples = np.array([len(part) for part in parts])
    # Held back of the training samples, or a split of the data.
    split = manifest.splits.get("validation")
    held = len(labels) - samples.sum() or (split.samples if split else 0)
    head = f"run {run}: {plural(samples.sum(), 'training sample')}, {plural(held, 'validation sample')}; "
    if len(parts) == 1:
        shared = "all workers share one order of the training samples, which is shuffled again each epoch"
        return head + shared
    lines = [f"{head}each of {len(parts):,} workers has its own"]
    if manifest.classes is not None:
        counts = np.array([_count(manifest, labels[part]) for part in parts])
        named, classes = manifest.class_labels, np.count_nonzero(counts, axis=1)
        columns: list[Column] = [
            ("worker", [str(worker) for worker in range(len(parts))]),
            ("samples", samples),
            ("classes", classes),
        ]
        if len(named) <= CLASSES:
            fits = all(len(name) <= HEADING for name in named)
            columns += zip(named if fits else map(str, range(len(named))), counts.T, strict=True)
        else:
            columns += [
                ("most frequent", [_short(named[kind]) for kind in counts.argmax(axis=1)]),
                ("share", [f"{share:.0%}" for share in counts.max(axis=1) / samples]),
            ]
        lines += [_text(columns), _range_summary("classes per worker", classes)]
    return "\n".join([*lines, _range_summary("samples per worker", samples)])


def _range_summary(title: str, counts: Indices) -> str:
    """Return a line with `title` and the minimum, maximum and median of `counts`."""
    if counts.min() == counts.max():
        return f"{title}: {counts.min():,}"
    return f"{title}: {counts.min():,} to {counts.max():,}, median {np.median(counts):,.0f}"


def _count(manifest: DataManifest, labels: Array) -> Indices:
    return np.bincount(labels, minlength=len(manifest.class_labels))


def _short(name: str) -> str:
    return shorten(name, MAX_CLASS_NAME_CHARS, placeholder=" ...")


def _text(columns: Sequence[Column], left: Sequence[int] = ()) -> str:
    """Return the table as text, shortened in the middle; dots replace zeros, so non-zero counts stand out."""
    rows = [
        [value if isinstance(value, str) else f"{value:,}" if value else "." for value in row]
        for row in zip(*(values for _, values in columns), strict=True)
    ]
    if len(rows) > ROWS:
        rows[ROWS // 2 : -ROWS // 2] = [["..."] * len(columns)]
    return "\n".join(table_lines([[heading for heading, _ in columns], *rows], left))


def list_data_folders() -> Iterator[tuple[Path, str, int, datetime]]:
    """Yield (folder, contents, size in bytes, local time of the last change) of stores and fetched files, sorted by name."""
    for folder in sorted(
        each for each in DATA_FOLDER.glob("*/*") if each.is_dir() and FOLDERS.fullmatch(each.name)
    ):
        is_raw = folder.name.startswith(RAW_FOLDER)
        record = folder / (FETCH_RECORD_FILE if is_raw else MANIFEST_FILE)
        contents = "fetched files" if is_raw else "incomplete"
        if not is_raw and record.exists():
            try:
                splits = DataManifest.load(folder).splits
                contents = ", ".join(f"{name} {split.samples:,}" for name, split in splits.items())
            except UserError:
                contents = "damaged manifest"
        changed = (record if record.exists() else folder).stat().st_mtime
        yield folder, contents, tree_size(folder)[1], datetime.fromtimestamp(changed)


def remove_data_folder(folder: Path) -> int:
    """Remove a store or a folder of fetched files; return its size in bytes.

    Raises UserError if the folder is neither, or if a process converts to it.
    """
    is_own = folder.resolve().parent.parent == DATA_FOLDER.resolve() and FOLDERS.fullmatch(folder.name)
    if not is_own or not folder.is_dir() or folder.is_symlink():
        raise UserError(
            f"{folder}: not a folder of a store or of fetched files; `nnlo data --stores` lists these folders"
        )
    size = tree_size(folder)[1]
    with exclusive_lock(folder / LOCK_FILE, f"converting to {folder}"):
        # First: without its manifest, a store that is removed only in part is not used.
        (folder / MANIFEST_FILE).unlink(missing_ok=True)
        shutil.rmtree(folder)
    return size
