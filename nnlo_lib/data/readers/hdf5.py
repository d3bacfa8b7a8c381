"""Access by row range to HDF5 files: plain, chunked and compressed arrays, also in groups."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from nnlo_lib.data.readers import Array
from nnlo_lib.data.readers.array_kind import ArrayHeader, block_rows, refuse_bomb


def hdf5_names(path: Path) -> list[str]:
    """Return the names of the arrays and groups at the top level of an HDF5 file."""
    # The files are only read, so locks are not needed; some network file systems do not support them.
    with h5py.File(path, "r", locking=False) as file:
        return sorted(file)


def find_hdf5(path: Path, key: str) -> dict[str, ArrayHeader]:
    """Return the array `key`, or the arrays in the group `key` sorted by name; empty if `key` is missing."""
    with h5py.File(path, "r", locking=False) as file:
        item = file.get(key) if key else None
        return {name: _kind_of(dataset) for name, dataset in _datasets(key, item, set())}


def hdf5_blocks(path: Path, name: str, start: int, end: int) -> Iterator[Array]:
    """Yield rows start..end-1 of an array; for a chunked array only the chunks of these rows are read, once.

    Args:
        path: HDF5 file.
        name: name of the array in the file.
        start: first row.
        end: last row + 1.
    """
    with h5py.File(path, "r", locking=False) as file:
        dataset = file[name]
        chunk = dataset.chunks[0] if dataset.chunks else 1
        step = max(1, block_rows(ArrayHeader(dataset.shape, dataset.dtype)) // chunk) * chunk
        while start < end:
            stop = min(end, start // chunk * chunk + step)
            yield np.asarray(dataset[start:stop])
            start = stop


def refuse_external_storage(dataset: Any) -> None:
    """Raise ValueError if an array has its values in other files."""
    if dataset.external:
        raise ValueError(
            f"{dataset.name} has its values in other files (external storage), which can be any file of this machine; "
            "copy them into one HDF5 file"
        )


def _datasets(name: str, item: Any, seen: set[Any]) -> Iterator[tuple[str, Any]]:
    """Yield the arrays of a group sorted by name, as in NNLO's H5Data.

    Links are followed. Raises ValueError if a group is reached more than once.

    Args:
        name: name of the item in the file.
        item: array, group or None.
        seen: groups that were already reached.
    """
    if isinstance(item, h5py.Dataset):
        yield name, item
    elif isinstance(item, h5py.Group):
        if item in seen:
            raise ValueError(f"{name.partition('/')[0]} contains the group {name} more than once")
        seen.add(item)
        for key in sorted(item):
            yield from _datasets(f"{name}/{key}", item[key], seen)


def _kind_of(dataset: Any) -> ArrayHeader:
    if dataset.is_virtual:
        raise ValueError(
            f"{dataset.name} is a virtual dataset, which is not supported: list its source files instead"
        )
    refuse_external_storage(dataset)
    kind, item = ArrayHeader(dataset.shape or (), dataset.dtype), dataset.id.get_type().get_size()
    declared = math.prod(kind.shape) * item
    stored = min(dataset.id.get_storage_size(), Path(dataset.file.filename).stat().st_size)
    # Arrays of objects have no fixed size; open_source refuses them by their type.
    if dataset.chunks is None and declared != stored and not kind.dtype.hasobject:
        raise ValueError(f"{dataset.name} declares {declared:,} bytes, but {stored:,} are stored")
    # A chunk is decompressed as a whole, so a huge chunk needs memory even if the array is small.
    chunk = math.prod(dataset.chunks) * item if dataset.chunks and declared else 0
    refuse_bomb(dataset.name, max(declared, chunk), stored)
    return kind
