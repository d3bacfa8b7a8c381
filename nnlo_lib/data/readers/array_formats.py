"""Formats of array files: names, headers and rows of HDF5, NPY and NPZ by h5py and NumPy, and checks of what headers declare."""

import importlib
import io
import math
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, Literal

import h5py
import numpy as np

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.fetch.archive import DEFLATE_LIMIT
from nnlo_lib.data.fetch.record import Stamp, stamp_of
from nnlo_lib.data.readers.base import Array

Unwritten = Literal["error", "fill"]
Header = tuple[tuple[int, ...], np.dtype[Any]]  # shape and type of a whole array
# Filters of HDF5 that plugins provide, by their registered number.
PLUGIN_FILTERS = {
    307: "bzip2", 32001: "Blosc", 32004: "LZ4", 32008: "bitshuffle", 32013: "ZFP", 32015: "Zstandard", 32026: "Blosc2",
}  # fmt: skip
PANDAS = "a table of pandas; write it by pandas.read_hdf(...).to_csv(..., index=False), and read the file by data.reader: {name: table}"


def is_number(dtype: np.dtype[Any]) -> bool:
    """Return True for types that samples may have: booleans, integers and floats of up to 64 bits."""
    return dtype.kind in "biuf" and dtype.itemsize <= 8


def is_text(dtype: np.dtype[Any]) -> bool:
    """Return True for text: bytes, Unicode, or HDF5's strings of any length."""
    return dtype.kind in "SU" or h5py.check_string_dtype(dtype) is not None


def stored_type(dtype: np.dtype[Any], wanted: str | None) -> np.dtype[Any]:
    """Return the type in the store of features of type `dtype`, by `data.reader.dtype`.

    Without it, floats and bytes (uint8) keep their type, other integers become the smallest float, of 32 or 64 bits, with their range.
    """
    if wanted is None and (dtype.kind == "f" or dtype == np.uint8):
        return dtype
    return np.dtype(wanted) if wanted else np.promote_types(dtype, np.float32)


def _refuse_bomb(name: str, declared: int, stored: int) -> None:
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
    """Return the names of the arrays and groups at the top level of an HDF5 file, with the fields of a compound type."""
    names = []
    with open_hdf5(path) as file:
        for name in sorted(file):
            item = file.get(name)  # None for a link to nothing
            fields = getattr(getattr(item, "dtype", None), "names", None)
            named = f"{name} with the fields {', '.join(fields)}" if fields else name
            names.append(f"{name}, {PANDAS}" if item is not None and "pandas_type" in item.attrs else named)
    return names


def find_hdf5(path: Path, key: str, unwritten: Unwritten) -> dict[str, Header]:
    """Return the array `key`, or the arrays in the group `key` sorted by name; empty if `key` is missing.

    unwritten: whether values that were never written are an error, or have the fill value of their array.
    """
    with open_hdf5(path) as file:
        item = file.get(key) if key else None
        return {name: _checked(dataset, unwritten) for name, dataset in _datasets(key, item, set())}


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


def _checked(dataset: Any, unwritten: Unwritten) -> Header:
    """Return the header of an array. Raises ValueError or UserError if its values are elsewhere, missing, or cannot be unpacked."""
    if dataset.is_virtual:
        raise ValueError(
            f"{dataset.name} is a virtual dataset, which is not supported: list its source files instead"
        )
    refuse_external_storage(dataset)
    where, created = f"{dataset.file.filename}: ", dataset.id.get_create_plist()
    for code in (created.get_filter(number)[0] for number in range(created.get_nfilters())):
        if not h5py.h5z.filter_avail(code):
            with suppress(ImportError):
                importlib.import_module("hdf5plugin")  # whose import registers its filters
        if not h5py.h5z.filter_avail(code):
            raise UserError(
                f"{where}{dataset.name} is compressed by filter {code} ({PLUGIN_FILTERS.get(code, 'not registered')}), which this "
                "installation of HDF5 lacks; pip install hdf5plugin, or write the array again with gzip"
            )
    item, chunk = dataset.id.get_type().get_size(), dataset.chunks
    size, stored, reason = (dataset.size or 0) * item, dataset.id.get_storage_size(), ""
    if chunk is not None:
        chunks = math.prod(-(-length // step) for length, step in zip(dataset.shape, chunk, strict=True))
        if missing := chunks - dataset.id.get_num_chunks():
            reason = f"{missing:,} of {chunks:,} chunks of {dataset.name} were never written"
    elif size and not stored:
        reason = f"{dataset.name} declares {size:,} bytes, but 0 are stored"
    if reason and unwritten == "error":  # samples would be zeros
        raise UserError(
            f"{where}{reason}, so that their samples would be {dataset.fillvalue}; finish writing the file, cut "
            "the array to what was written (Dataset.resize), or, if this value is meant, set data.reader.unwritten: fill"
        )
    if size and (stored or not reason):
        # A chunk is decompressed as a whole, so a huge chunk needs memory even if the array is small.
        declared = max(0 if reason else size, math.prod(chunk or ()) * item)
        _refuse_bomb(dataset.name, declared, min(stored, Path(dataset.file.filename).stat().st_size))
    return dataset.shape or (), dataset.dtype


def find_npy(path: Path, key: str, unwritten: Unwritten) -> dict[str, Header]:
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


def find_npz(path: Path, key: str, unwritten: Unwritten) -> dict[str, Header]:
    """Return the array `key`, or the arrays `key/...` sorted by name; empty if neither exists."""
    names, found = npz_names(path), {}
    for name in [key] if key in names else [name for name in names if name.startswith(f"{key}/")]:
        with zipfile.ZipFile(path) as archive, archive.open(f"{name}.npy") as stream:
            member = archive.getinfo(f"{name}.npy")
            found[name] = _header(stream, member.file_size)
        # The sizes come from the directory of the ZIP, which can be wrong; the compressed size cannot exceed the file.
        _refuse_bomb(name, member.file_size, min(member.compress_size, path.stat().st_size))
    return found


def npz_rows(path: Path, name: str, start: int, end: int) -> Array:
    """Return rows start..end-1 of an array of an NPZ, which is read as a whole."""
    return _member(path, name, stamp_of(path))[start:end]


# Two, because a shard needs features and labels, and the next shard the same arrays.
@lru_cache(maxsize=2)
def _member(path: Path, name: str, _version: Stamp) -> Array:
    with np.load(path, allow_pickle=False) as archive:
        found: Array = archive[name]
        return found


def _header(stream: IO[bytes], size: int) -> Header:
    """Return the header of an NPY of `size` bytes. Raises ValueError if the header does not fit the size."""
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(stream)
    declared, held = math.prod(shape) * dtype.itemsize, size - stream.tell()
    # Arrays of objects have no fixed size; open_source refuses them by their type.
    if min(shape, default=0) < 0 or (declared != held and not dtype.hasobject):
        raise ValueError(
            f"the header declares {declared:,} bytes in the shape {shape}, but {held:,} are stored"
        )
    return shape, dtype
