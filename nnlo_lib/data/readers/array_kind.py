"""What a file declares of an array, and whether the file can hold that."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from nnlo_lib.data.fetch.gzip_content import DEFLATE_LIMIT


@dataclass(frozen=True)
class ArrayHeader:
    """An array in a file: the shape of all of it, and its type."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def bytes(self) -> int:
        """Bytes of the whole array."""
        return math.prod(self.shape) * self.dtype.itemsize


def is_number(dtype: np.dtype[Any]) -> bool:
    """Tell whether values can be stored and learned from: booleans, integers, and floats of up to 64 bits."""
    return dtype.kind in "biuf" and dtype.itemsize <= 8


def refuse_bomb(name: str, declared: int, stored: int) -> None:
    """Raise ValueError if `declared` bytes of values cannot come from `stored` ones."""
    if declared > stored * DEFLATE_LIMIT:
        raise ValueError(f"{name} declares {declared:,} bytes, but {stored:,} are stored")
