"""Fewer bits of precision."""

import torch
from torch import Tensor

from nnlo_lib.comm.compress.compressor import Compressor
from nnlo_lib.comm.compress.payload import as_bytes


class Cast(Compressor):
    """C(v) = v rounded to a shorter floating-point type; beyond its range, its largest number.

    Bytes: 2 P for float16 and bfloat16.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype, self._limit = dtype, torch.finfo(dtype).max

    def size(self, vector: Tensor) -> int:
        return vector.numel() * self._dtype.itemsize

    def encode(self, vector: Tensor, step: int, rank: int) -> Tensor:
        return as_bytes(vector.clamp(-self._limit, self._limit).to(self._dtype))

    def decode(self, payload: Tensor, vector: Tensor) -> None:
        vector.copy_(payload.view(self._dtype))
