"""What every way to write a vector in fewer bytes implements."""

from abc import ABC, abstractmethod
from typing import Any, Self

import torch
from torch import Tensor

from nnlo_lib.core.rng import derive_seed


class Compressor(ABC):
    """Write a contiguous vector v (P,) of float32 or float64 as fewer bytes; C(v) is what these decode to.

    C(0) = 0, and every C contracts: E|C(v) - v|^2 <= (1 - delta) |v|^2 with a delta > 0, as error feedback
    (Karimireddy et al. 2019, assumption A) and CHOCO-SGD need; random ones are therefore not scaled up to be
    unbiased. One instance serves one vector of one rank, step after step.
    """

    lossless = False  # whether C(v) = v always

    @classmethod
    def from_config(cls, config: Any, seed: int) -> Self:
        """Return a compressor; its settings (a subclass of BaseCompressionConfig) are the class's keyword arguments."""
        return cls(**config.arguments)

    @abstractmethod
    def size(self, vector: Tensor) -> int:
        """Return the bytes of the payload of any vector of this length and dtype: the same on all ranks."""

    def payload_buffer(self, vector: Tensor) -> Tensor:
        """Return memory for a payload that is to be decoded into `vector`, at best its own."""
        return torch.empty(self.size(vector), dtype=torch.uint8, device=vector.device)

    @abstractmethod
    def encode(self, vector: Tensor, step: int, rank: int) -> Tensor:
        """Return the payload of `vector`, (size,) of uint8; draws are those of (rank, step)."""

    @abstractmethod
    def decode(self, payload: Tensor, vector: Tensor) -> None:
        """Overwrite `vector` by what `payload`, of any rank and step, stands for."""

    def state(self) -> dict[str, Tensor]:
        """Return the tensors that a resumed run needs."""
        return {}

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        """Restore what `state` returned."""


def generator(seed: int, step: int, rank: int) -> torch.Generator:
    """Return the generator for what `rank` sends in `step`; on the CPU, so that all draw alike."""
    return torch.Generator().manual_seed(derive_seed(seed, "compression", rank, step))
