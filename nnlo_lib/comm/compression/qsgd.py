"""QSGD: random rounding to a few levels."""

from math import sqrt
from typing import Any, Self

import torch
from torch import Tensor

from nnlo_lib.comm.compression.base import Compressor, generator
from nnlo_lib.comm.compression.bit_packing import concat_bytes, pack, packed_size, unpack


class QSGD(Compressor):
    """Round |v_i| s / |v| at random to a level l_i, up or down, in buckets of d values; s = 2^(bits - 1) - 1.

        C(v)_i = |v| sign(v_i) l_i / (s tau),    E l_i = |v_i| s / |v|,    tau = 1 + min(d / s^2, sqrt(d) / s)

    Alistarh et al., QSGD, 2017, section 3.1 and lemma 3.1: tau C is unbiased. The division by tau makes C
    contract with delta = 1 / tau (Koloskova, Stich and Jaggi, CHOCO-SGD, 2019). Without it, at few bits, the
    variance would exceed |v|^2, and a fed-back error would grow.
    Bytes: one value per bucket, then `bits` bytes for every eight values.
    """

    def __init__(self, bits: int, bucket: int, seed: int) -> None:
        self._bits, self._bucket, self._seed = bits, bucket, seed
        self._levels = (1 << (bits - 1)) - 1

    @classmethod
    def from_config(cls, config: Any, seed: int) -> Self:
        """Return a compressor that draws from `seed`."""
        return cls(**config.arguments, seed=seed)

    def size(self, vector: Tensor) -> int:
        return self._buckets(vector) * vector.element_size() + packed_size(vector.numel(), self._bits)

    def tau(self, vector: Tensor) -> float:
        """Return 1 / delta."""
        width, levels = self._width(vector), self._levels
        return 1 + min(width / levels**2, sqrt(width) / levels)

    def encode(self, vector: Tensor, step: int, rank: int) -> Tensor:
        rows = self._rows(vector)
        # In float64, because squares of large float32 values overflow.
        norms = torch.linalg.vector_norm(rows, dim=1, keepdim=True, dtype=torch.float64).to(rows.dtype)
        # A bucket of zeros has norm 0; the division by 1 gives C(0) = 0.
        heights = rows / norms.where(norms > 0, 1) * self._levels
        draws = torch.rand(rows.shape, generator=generator(self._seed, step, rank)).to(rows)
        # A rounded norm may be smaller than its largest value: without the clamp, the code exceeds its bits.
        levels = (heights.abs() + draws).floor().clamp(max=self._levels).copysign(rows)
        codes = (levels + self._levels).to(torch.uint8).view(-1)[: vector.numel()]
        return concat_bytes(norms / self.tau(vector), pack(codes, self._bits))

    def decode(self, payload: Tensor, vector: Tensor) -> None:
        head = self._buckets(vector) * vector.element_size()
        norms = payload[:head].view(vector.dtype) / self._levels
        codes = unpack(payload[head:], self._bits, vector.numel())
        rows = self._rows(codes.to(vector.dtype) - self._levels)
        vector.copy_((rows * norms[:, None]).view(-1)[: vector.numel()])

    def _width(self, vector: Tensor) -> int:
        return min(self._bucket, vector.numel())

    def _buckets(self, vector: Tensor) -> int:
        return -(-vector.numel() // self._width(vector))

    def _rows(self, vector: Tensor) -> Tensor:
        width = self._width(vector)
        return torch.nn.functional.pad(vector, (0, -vector.numel() % width)).view(-1, width)
