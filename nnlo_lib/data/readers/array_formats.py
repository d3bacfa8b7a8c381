"""Formats of array files: names, headers and rows of HDF5, NPY and NPZ by h5py and NumPy, and checks of what headers declare."""

import importlib
import io
import math
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple

import h5py
import numpy as np

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.fetch.archive import DEFLATE_LIMIT
from nnlo_lib.data.fetch.record import FileVersion, file_version
from nnlo_lib.data.readers.base import Array

Unwritten = Literal["error", "fill"]
# Filters of HDF5 that plugins provide, by their registered number.
PLUGIN_FILTERS = {
    307: "bzip2", 32001: "Blosc", 32004: "LZ4", 32008: "bitshuffle", 32013: "ZFP", 32015: "Zstandard", 32026: "Blosc2",
}  # fmt: skip


PANDAS = "a table of pandas; write it by pandas.read_hdf(...).to_csv(..., index=False), and read the file by data.reader: {name: table}"


class ArrayHeader(NamedTuple):
    """Shape of a whole array in a file, and its type."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def bytes(self) -> int:
        """Size of the whole array in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


def is_number(dtype: np.dtype[Any]) -> bool:
    """Return True for types that samples may have: booleans, integers and floats of up to 64 bits."""
    return dtype.kind in "biuf" and dtype.itemsize <= 8


def is_text(dtype: np.dtype[Any]) -> bool:
    """Return True for text: bytes, Unicode, or HDF5's strings of any length."""
    return dtype.kind in "SU" or h5py.check_string_dtype(dtype) is not None


def stored_type(dtype: np.dtype[Any], wanted: str | None) -> np.dtype[Any]:
    """Return the type in the store of features of type `dtype`.

    Args:
        wanted: `data.reader.dtype`. None: floats and bytes (uint8) keep their type; booleans and other
            integers become the smallest float, of 32 or 64 bits, that has their range.
    """
    if wanted is None and (dtype.kind == "f" or dtype == np.uint8):
        return dtype
    return np.dtype(wanted) if wanted else np.promote_types(dtype, np.float32)


def refuse_bomb(name: str, declared: int, stored: int) -> None:
    """Raise ValueError if the `stored` bytes of an array cannot decompress to the `declared` bytes."""
    if declared > stored * DEFLATE_LIMIT:
        raise ValueError(f"{name} declares {declared:,} bytes, but {stored:,} are stored")


class _NamedFile(io.FileIO):
    def __repr__(self) -> str:
        return str(self.name)  # h5py's name of the file


def open_hdf5(path: str | Path) -> h5py.File:
    """Open a file for reading, to be closed by `with`. Locks are not needed, and some network file systems lack them."""
    try:
        return h5py.File(path, "r", locking=False)
    except OSError as error:
        # This process has the file open with locks, HDF5_USE_FILE_LOCKING asks for them, or a writer was killed.
        if not any(
            words in str(error) for words in ("file locking flag", "unable to lock", "already open for write")
        ):
            raise
    return h5py.File(_NamedFile(path), "r")  # HDF5 neither locks an open file nor compares it with others


def hdf5_names(path: Path) -> list[str]:
    """Return the names of the arrays and groups at the top level of an HDF5 file."""
    with open_hdf5(path) as file:
        items = {name: file.get(name) for name in sorted(file)}
        fields = {
            name: getattr(getattr(item, "dtype", None), "names", None) or () for name, item in items.items()
        }
        return [
            f"{name}, {PANDAS}" if item is not None and "pandas_type" in item.attrs
            else f"{name} with the fields {', '.join(fields[name])}" if fields[name] else name
            for name, item in items.items()
        ]  # fmt: skip


def find_hdf5(path: Path, key: str, unwritten: Unwritten) -> dict[str, ArrayHeader]:
    """Return the array `key`, or the arrays in the group `key` sorted by name; empty if `key` is missing.

    unwritten: whether values that were never written are an error, or have the fill value of their array.
    """
    with open_hdf5(path) as file:
        item = file.get(key) if key else None
        return {name: _kind_of(dataset, unwritten) for name, dataset in _datasets(key, item, set())}


def hdf5_rows(path: Path, name: str, start: int, end: int) -> Array:
    """Return rows start..end-1 of an array."""
    with open_hdf5(path) as file:
        return np.asarray(file[name][start:end])


def refuse_external_storage(dataset: Any) -> None:
    """Raise ValueError if an array has its values in other files."""
    if dataset.external:
        raise ValueError(
            f"{dataset.name} has its values in other files (external storage), which can be any file of this machine; "
            "copy them into one HDF5 file"
        )


def _refuse_missing_filters(dataset: Any) -> None:
    """Raise UserError if an array is compressed by a filter that neither HDF5 nor an installed hdf5plugin has."""
    created = dataset.id.get_create_plist()
    for code in (created.get_filter(number)[0] for number in range(created.get_nfilters())):
        if not h5py.h5z.filter_avail(code):
            with suppress(ImportError):
                importlib.import_module("hdf5plugin")  # whose import registers its filters
        if not h5py.h5z.filter_avail(code):
            raise UserError(
                f"{dataset.file.filename}: {dataset.name} is compressed by filter {code} "
                f"({PLUGIN_FILTERS.get(code, 'not registered')}), which this installation of HDF5 lacks; "
                "pip install hdf5plugin, or write the array again with gzip"
            )


def _refuse_unwritten(dataset: Any) -> None:
    """Raise UserError if values of an array were never written: their samples would be zeros."""
    size, reason = dataset.size * dataset.id.get_type().get_size(), ""
    if dataset.chunks is not None:
        chunks = math.prod(-(-size // step) for size, step in zip(dataset.shape, dataset.chunks, strict=True))
        if missing := chunks - dataset.id.get_num_chunks():
            reason = f"{missing:,} of {chunks:,} chunks of {dataset.name} were never written"
    elif size and not dataset.id.get_storage_size():
        reason = f"{dataset.name} declares {size:,} bytes, but 0 are stored"
    if reason:
        raise UserError(
            f"{dataset.file.filename}: {reason}, so that their samples would be {dataset.fillvalue}; finish writing the file, cut "
            "the array to what was written (Dataset.resize), or, if this value is meant, set data.reader.unwritten: fill"
        )


def _datasets(name: str, item: Any, seen: set[Any]) -> Iterator[tuple[str, Any]]:
    """Yield the arrays of a group sorted by name, as in NNLO's H5Data.

    Links are followed. Raises ValueError if a group is reached more than once; `seen` has the groups so far.
    """
    if isinstance(item, h5py.Dataset):
        yield name, item
    elif isinstance(item, h5py.Group):
        if item in seen:
            raise ValueError(f"{name.partition('/')[0]} contains the group {name} more than once")
        if "pandas_type" in item.attrs:
            raise UserError(f"{item.file.filename}: {item.name} is {PANDAS}")
        seen.add(item)
        for key in sorted(item):
            yield from _datasets(f"{name}/{key}", item[key], seen)


def _kind_of(dataset: Any, unwritten: Unwritten) -> ArrayHeader:
    if dataset.is_virtual:
        raise ValueError(
            f"{dataset.name} is a virtual dataset, which is not supported: list its source files instead"
        )
    refuse_external_storage(dataset)
    _refuse_missing_filters(dataset)
    # A chunk is decompressed as a whole, so a huge chunk needs memory even if the array is small.
    declared = math.prod(dataset.chunks or ()) * dataset.id.get_type().get_size() if dataset.size else 0
    if unwritten == "error":
        _refuse_unwritten(dataset)
        declared = max(declared, dataset.size * dataset.id.get_type().get_size() if dataset.size else 0)
    stored = min(dataset.id.get_storage_size(), Path(dataset.file.filename).stat().st_size)
    if stored or unwritten == "error":
        refuse_bomb(dataset.name, declared, stored)
    return ArrayHeader(dataset.shape or (), dataset.dtype)


def find_npy(path: Path, key: str, unwritten: Unwritten) -> dict[str, ArrayHeader]:
    """Return the header of an NPY's only array under the name `key`: the array has no name of its own."""
    with path.open("rb") as stream:
        return {key: _header(stream, path.stat().st_size)}


def npy_rows(path: Path, name: str, start: int, end: int) -> Array:
    """Return rows start..end-1 of the single array of an NPY; `name` is not used."""
    return np.array(np.load(path, mmap_mode="r", allow_pickle=False)[start:end])


def npz_names(path: Path) -> list[str]:
    """Return the names of the arrays of an NPZ, sorted like nested groups."""
    with zipfile.ZipFile(path) as archive:
        names = (name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy"))
        return sorted(names, key=lambda name: name.split("/"))


def find_npz(path: Path, key: str, unwritten: Unwritten) -> dict[str, ArrayHeader]:
    """Return the array `key`, or the arrays `key/...` sorted by name; empty if neither exists."""
    names = npz_names(path)
    wanted = [key] if key in names else [name for name in names if name.startswith(f"{key}/")]
    return {name: _kind_in_npz(path, name) for name in wanted}


def npz_rows(path: Path, name: str, start: int, end: int) -> Array:
    """Return rows start..end-1 of an array of an NPZ, which is read as a whole."""
    return _member(path, name, file_version(path))[start:end]


# Two, because a shard needs features and labels, and the next shard the same arrays.
@lru_cache(maxsize=2)
def _member(path: Path, name: str, _version: FileVersion) -> Array:
    with np.load(path, allow_pickle=False) as archive:
        found: Array = archive[name]
        return found


def _kind_in_npz(path: Path, name: str) -> ArrayHeader:
    with zipfile.ZipFile(path) as archive, archive.open(f"{name}.npy") as stream:
        member = archive.getinfo(f"{name}.npy")
        kind = _header(stream, member.file_size)
    # The compressed size comes from the directory of the ZIP, which can be wrong, but cannot exceed the file.
    refuse_bomb(name, kind.bytes, min(member.compress_size, path.stat().st_size))
    return kind


def _header(stream: IO[bytes], size: int) -> ArrayHeader:
    """Return the header of an NPY of `size` bytes. Raises ValueError if the header does not fit the size."""
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(stream)
    kind, held = ArrayHeader(shape, dtype), size - stream.tell()
    if min(shape, default=0) < 0:
        raise ValueError(f"the header declares the shape {shape}, which has a negative length")
    # Arrays of objects have no fixed size; open_source refuses them by their type.
    if kind.bytes != held and not dtype.hasobject:
        raise ValueError(f"the header declares {kind.bytes:,} bytes of values, but {held:,} are stored")
    return kind
