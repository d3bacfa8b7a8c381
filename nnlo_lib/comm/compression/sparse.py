"""Sparsification: a few values are kept, the other values are set to zero."""

from abc import abstractmethod
from typing import Any, Self

import torch
from torch import Tensor

from nnlo_lib.comm.compression.base import Compressor, generator
from nnlo_lib.comm.compression.bit_packing import concat_bytes

HEADER_BYTES = 16  # bytes: rank and step


class Sparse(Compressor):
    """C(v) = v at k indices, zero elsewhere; k = fraction P, rounded, at least 1. delta = k / P.

    Stich, Cordonnier and Jaggi, Sparsified SGD with memory, 2018, definition 2.1.
    """

    def __init__(self, fraction: float) -> None:
        self._fraction = fraction

    def kept(self, vector: Tensor) -> int:
        """Return k, the number of values that are kept."""
        return max(1, round(self._fraction * vector.numel()))

    @abstractmethod
    def read(self, payload: Tensor, vector: Tensor) -> tuple[Tensor, Tensor]:
        """Return the k indices and the k values that `payload` holds."""

    def decode(self, payload: Tensor, vector: Tensor) -> None:
        places, values = self.read(payload, vector)
        vector.zero_()[places] = values


class TopK(Sparse):
    """Keep the k values of largest magnitude.

    Bytes: k values, then k indices of 4 bytes; P < 2^31.
    """

    def size(self, vector: Tensor) -> int:
        return self.kept(vector) * (vector.element_size() + 4)

    def encode(self, vector: Tensor, step: int, rank: int) -> Tensor:
        places = vector.abs().topk(self.kept(vector), sorted=False).indices
        # Values before indices, because `concat_bytes` requires the wider type first (float64).
        return concat_bytes(vector[places], places.int())

    def read(self, payload: Tensor, vector: Tensor) -> tuple[Tensor, Tensor]:
        end = self.kept(vector) * vector.element_size()
        return payload[end:].view(torch.int32).long(), payload[:end].view(vector.dtype)


class RandomK(Sparse):
    """Keep k values, drawn without replacement; the receiver repeats the draw of their indices.

    Not scaled: P / k C(v) is unbiased, but its variance, (P / k - 1) |v|^2, would let a fed-back error grow.
    Bytes: rank and step, 8 bytes each, then k values.
    """

    def __init__(self, fraction: float, seed: int) -> None:
        super().__init__(fraction)
        self._seed = seed

    @classmethod
    def from_config(cls, config: Any, seed: int) -> Self:
        """Return a compressor that draws from `seed`."""
        return cls(**config.arguments, seed=seed)

    def size(self, vector: Tensor) -> int:
        return HEADER_BYTES + self.kept(vector) * vector.element_size()

    def encode(self, vector: Tensor, step: int, rank: int) -> Tensor:
        # Senders may be at different steps: a receiver learns from the header which draw to repeat.
        header = torch.tensor([rank, step], device=vector.device)
        return concat_bytes(header, vector[self._draw(vector, step, rank)])

    def read(self, payload: Tensor, vector: Tensor) -> tuple[Tensor, Tensor]:
        rank, step = payload[:HEADER_BYTES].view(torch.int64).tolist()
        return self._draw(vector, step, rank), payload[HEADER_BYTES:].view(vector.dtype)

    def _draw(self, vector: Tensor, step: int, rank: int) -> Tensor:
        order = torch.randperm(vector.numel(), generator=generator(self._seed, step, rank))
        return order[: self.kept(vector)].to(vector.device)
