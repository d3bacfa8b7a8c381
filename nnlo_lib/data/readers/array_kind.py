"""Declared shape and type of an array in a file, and checks of these declarations."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from nnlo_lib.data.fetch.gzip_content import DEFLATE_LIMIT


@dataclass(frozen=True)
class ArrayHeader:
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


def refuse_bomb(name: str, declared: int, stored: int) -> None:
    """Raise ValueError if `stored` bytes cannot decompress to `declared` bytes.

    Args:
        name: name of the array, for the error message.
        declared: size of the array in bytes that the header declares.
        stored: size of the stored data in bytes.
    """
    if declared > stored * DEFLATE_LIMIT:
        raise ValueError(f"{name} declares {declared:,} bytes, but {stored:,} are stored")
