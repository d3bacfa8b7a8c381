"""Quantization, compressors that shorten each value: `fp16` and `bf16`, `qsgd`, `sign`."""

from math import sqrt
from typing import Self

import torch
from torch import Tensor

from nnlo_lib.comm.compression.base import (
    Compressor,
    as_bytes,
    concat_bytes,
    generator,
    pack,
    packed_size,
    unpack,
)
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


class QSGD(Compressor):
    """Round |v_i| s / |v| at random to a level l_i, up or down, in buckets of d values; s = 2^(bits - 1) - 1.

        C(v)_i = |v| sign(v_i) l_i / (s tau),    E l_i = |v_i| s / |v|,    tau = 1 + min(d / s^2, sqrt(d) / s)

    Alistarh et al., QSGD, 2017, section 3.1 and lemma 3.1: tau C is unbiased. The division by tau makes C
    contract with delta = 1 / tau (Koloskova, Stich and Jaggi, CHOCO-SGD, 2019). Without it, at few bits, the
    variance would exceed |v|^2, and a fed-back error would grow.
    Bytes: one value per bucket, then `bits` bytes for every eight values.
    """

    draws = True

    def __init__(self, bits: int, bucket: int, seed: int) -> None:
        self._bits, self._bucket, self._seed = bits, bucket, seed
        self._levels = (1 << (bits - 1)) - 1

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


class Sign(Compressor):
    """C(v) = |v|_1 / P sign(v), where zeros count as positive; delta = |v|_1^2 / (P |v|^2) >= 1 / P.

    Bernstein et al., signSGD, 2018, with the scale of Karimireddy et al., Error feedback fixes signSGD, 2019,
    algorithm 1. Bytes: one value, and P / 8.
    """

    def size(self, vector: Tensor) -> int:
        return vector.element_size() + packed_size(vector.numel(), 1)

    def encode(self, vector: Tensor, step: int, rank: int) -> Tensor:
        scale = vector.abs().mean(dtype=torch.float64).to(vector.dtype)
        return concat_bytes(scale, pack((vector < 0).to(torch.uint8), 1))

    def decode(self, payload: Tensor, vector: Tensor) -> None:
        scale = payload[: vector.element_size()].view(vector.dtype)
        negative = unpack(payload[vector.element_size() :], 1, vector.numel())
        vector.copy_(negative).mul_(-2).add_(1).mul_(scale)
