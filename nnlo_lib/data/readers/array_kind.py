"""Declared shape and type of an array in a file, and checks of these declarations."""

import math
from dataclasses import dataclass
from typing import Any

import h5py
import numpy as np

from nnlo_lib.data.fetch.gzip_content import DEFLATE_LIMIT

BLOCK_BYTES = 1 << 22  # small beside a shard; files are not read faster in larger blocks


@dataclass(frozen=True)
class ArrayHeader:
    """Shape of a whole array in a file, and its type."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def bytes(self) -> int:
        """Size of the whole array in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


def block_rows(header: ArrayHeader) -> int:
    """Return the number of rows that are read at once, about BLOCK_BYTES."""
    return max(1, BLOCK_BYTES * header.shape[0] // max(1, header.bytes))


def is_number(dtype: np.dtype[Any]) -> bool:
    """Return True for types that samples may have: booleans, integers and floats of up to 64 bits."""
    return dtype.kind in "biuf" and dtype.itemsize <= 8


def is_text(dtype: np.dtype[Any]) -> bool:
    """Return True for text: bytes, Unicode, or HDF5's strings of any length."""
    return dtype.kind in "SU" or h5py.check_string_dtype(dtype) is not None


def stored_type(dtype: np.dtype[Any], wanted: str | None) -> np.dtype[Any]:
    """Return the type in the store of features of type `dtype`.

    Args:
        dtype: type in the source file.
        wanted: `data.reader.dtype`. None: floats and bytes (uint8) keep their type; booleans and other
            integers become the smallest float, of 32 or 64 bits, that has their range.
    """
    if wanted is None and (dtype.kind == "f" or dtype == np.uint8):
        return dtype
    return np.dtype(wanted) if wanted else np.promote_types(dtype, np.float32)


def refuse_bomb(name: str, declared: int, stored: int) -> None:
    """Raise ValueError if `stored` bytes cannot decompress to `declared` bytes.

    Args:
        name: name of the array, for the error message.
        declared: size of the array in bytes that the header declares.
        stored: size of the stored data in bytes.
    """
    if declared > stored * DEFLATE_LIMIT:
        raise ValueError(f"{name} declares {declared:,} bytes, but {stored:,} are stored")
