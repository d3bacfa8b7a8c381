"""Casts to shorter floating-point types."""

from typing import Self

import torch
from torch import Tensor

from nnlo_lib.comm.compression.base import Compressor
from nnlo_lib.comm.compression.bit_packing import as_bytes
from nnlo_lib.config.compression import BF16Config, FP16Config


class Cast(Compressor):
    """C(v) = v rounded to a shorter floating-point type; values beyond its range become its largest number.

    Bytes: 2 P for float16 and bfloat16.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype, self._limit = dtype, torch.finfo(dtype).max

    @classmethod
    def from_config(cls, config: FP16Config | BF16Config, seed: int) -> Self:
        """Return the cast to half precision or to bfloat16."""
        return cls(torch.float16 if isinstance(config, FP16Config) else torch.bfloat16)

    def size(self, vector: Tensor) -> int:
        return vector.numel() * self._dtype.itemsize

    def encode(self, vector: Tensor, step: int, rank: int) -> Tensor:
        # The conversion alone gives infinity beyond the range, and error feedback an infinite residual.
        return as_bytes(vector.clamp(-self._limit, self._limit).to(self._dtype))

    def decode(self, payload: Tensor, vector: Tensor) -> None:
        vector.copy_(payload.view(self._dtype))
