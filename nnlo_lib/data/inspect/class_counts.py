"""Tables of the number of samples per class and split, and per worker and class."""

from collections.abc import Mapping, Sequence
from textwrap import shorten
from typing import Any

import numpy as np

from nnlo_lib.core.text_format import table_lines
from nnlo_lib.data.readers import Array, Indices
from nnlo_lib.data.store.manifest import DataManifest

Column = tuple[str, Any]  # heading, and a sequence or an array of texts or counts

ROWS = 24  # maximum rows of a table; a longer table is shortened in the middle
CLASSES = 12  # maximum number of classes that get one column each
HEADING, MAX_CLASS_NAME_CHARS = 10, 40  # limits of a class name's length: above a column, and in a row


def samples_by_class(manifest: DataManifest, labels: Mapping[str, Array]) -> str:
    """Return a table of the samples per class and split; `labels` has the class of each sample by split."""
    counts = [(name, _count(manifest, each)) for name, each in labels.items()]
    names = [_short(name) for name in manifest.class_names or ()]
    numbers = [str(number) for number in range(len(manifest.class_labels))]
    columns: list[Column] = [("class", numbers), *([("name", names)] if names else []), *counts]
    summary = range_summary("training samples per class", dict(counts)["train"])
    return f"{_text(columns, left=(1,) if names else ())}\n{summary}"


def samples_by_worker(manifest: DataManifest, parts: Sequence[Indices], labels: Array) -> str:
    """Return a table of the samples of each worker.

    The table has a column per class for up to CLASSES classes, otherwise the most frequent class per worker.

    Args:
        manifest: the data set.
        parts: training samples of each worker, (samples,).
        labels: class of each training sample.
    """
    counts = np.array([_count(manifest, labels[part]) for part in parts])
    named, classes = manifest.class_labels, np.count_nonzero(counts, axis=1)
    columns = [
        ("worker", [str(worker) for worker in range(len(parts))]),
        ("samples", counts.sum(axis=1)),
        ("classes", classes),
        *(_each(named, counts) if len(named) <= CLASSES else _most_frequent(named, counts)),
    ]
    return f"{_text(columns)}\n{range_summary('classes per worker', classes)}"


def range_summary(title: str, counts: Indices) -> str:
    """Return a line with `title` and the minimum, maximum and median of `counts`."""
    if counts.min() == counts.max():
        return f"{title}: {counts.min():,}"
    return f"{title}: {counts.min():,} to {counts.max():,}, median {np.median(counts):,.0f}"


def _count(manifest: DataManifest, labels: Array) -> Indices:
    return np.bincount(labels, minlength=len(manifest.class_labels))


def _each(named: Sequence[str], counts: Array) -> list[Column]:
    fits = all(len(name) <= HEADING for name in named)
    return list(zip(named if fits else map(str, range(len(named))), counts.T, strict=True))


def _most_frequent(named: Sequence[str], counts: Array) -> list[Column]:
    shares = counts.max(axis=1) / counts.sum(axis=1)
    names = [_short(named[kind]) for kind in counts.argmax(axis=1)]
    return [("most frequent", names), ("share", [f"{share:.0%}" for share in shares])]


def _short(name: str) -> str:
    return shorten(name, MAX_CLASS_NAME_CHARS, placeholder=" ...")


def _text(columns: Sequence[Column], left: Sequence[int] = ()) -> str:
    """Return the table as text, shortened in the middle; dots replace zeros, so non-zero counts stand out."""
    rows = [[_cell(value) for value in row] for row in zip(*(values for _, values in columns), strict=True)]
    if len(rows) > ROWS:
        rows[ROWS // 2 : -ROWS // 2] = [["..."] * len(columns)]
    return "\n".join(table_lines([[heading for heading, _ in columns], *rows], left))


def _cell(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:,}" if value else "."
