"""signSGD: one bit per value."""

import torch
from torch import Tensor

from nnlo_lib.comm.compression.base import Compressor
from nnlo_lib.comm.compression.bit_packing import concat_bytes, pack, packed_size, unpack


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
