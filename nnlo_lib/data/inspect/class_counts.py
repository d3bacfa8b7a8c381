"""Tables of the number of samples per class and split, and per worker and class."""

from collections.abc import Mapping, Sequence
from textwrap import shorten
from typing import TYPE_CHECKING

import numpy as np

from nnlo_lib.data.readers import Array, Indices
from nnlo_lib.data.store.manifest import DataManifest

if TYPE_CHECKING:
    from pandas import DataFrame

ROWS = 24  # maximum rows of a table; a longer table is shortened in the middle
CLASSES = 12  # maximum number of classes that get one column each
HEADING, MAX_CLASS_NAME_CHARS = 10, 40  # limits of a class name's length: above a column, and in a row


def samples_by_class(manifest: DataManifest, labels: Mapping[str, Array]) -> str:
    """Return a table of the samples per class and split; `labels` has the class of each sample by split."""
    from pandas import DataFrame

    table = DataFrame({name: _count(manifest, each) for name, each in labels.items()})
    summary = range_summary("training samples per class", table["train"].to_numpy())
    if manifest.class_names:
        names = [_short(name) for name in manifest.class_names]
        width = max(len(name) for name in names)
        table.insert(0, "name".ljust(width), [name.ljust(width) for name in names])
    table.insert(0, "class", [str(number) for number in range(len(table))])
    return f"{_text(table)}\n{summary}"


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
    table = _each(named, counts) if len(named) <= CLASSES else _most_frequent(named, counts)
    # A class can have the same name as one of these columns.
    table.insert(0, "worker", [str(worker) for worker in range(len(parts))], allow_duplicates=True)
    table.insert(1, "samples", counts.sum(axis=1), allow_duplicates=True)
    table.insert(2, "classes", classes, allow_duplicates=True)
    return f"{_text(table)}\n{range_summary('classes per worker', classes)}"


def range_summary(title: str, counts: Indices) -> str:
    """Return a line with `title` and the minimum, maximum and median of `counts`."""
    if counts.min() == counts.max():
        return f"{title}: {counts.min():,}"
    return f"{title}: {counts.min():,} to {counts.max():,}, median {np.median(counts):,.0f}"


def _count(manifest: DataManifest, labels: Array) -> Indices:
    return np.bincount(labels, minlength=len(manifest.class_labels))


def _each(named: Sequence[str], counts: Array) -> "DataFrame":
    from pandas import DataFrame

    fits = all(len(name) <= HEADING for name in named)
    return DataFrame(counts, columns=list(named) if fits else [str(number) for number in range(len(named))])


def _most_frequent(named: Sequence[str], counts: Array) -> "DataFrame":
    from pandas import DataFrame

    shares = counts.max(axis=1) / counts.sum(axis=1)
    names = [_short(named[kind]) for kind in counts.argmax(axis=1)]
    return DataFrame({"most frequent": names, "share": [f"{share:.0%}" for share in shares]})


def _short(name: str) -> str:
    return shorten(name, MAX_CLASS_NAME_CHARS, placeholder=" ...")


def _text(table: "DataFrame") -> str:
    """Return the table as text, shortened in the middle; dots replace zeros, so non-zero counts stand out."""
    shown = table.map(lambda value: value if isinstance(value, str) else f"{value:,}" if value else ".")
    return shown.to_string(index=False, max_rows=ROWS)
