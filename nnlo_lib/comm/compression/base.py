"""Interface of the compressors, which write a vector in fewer bytes."""

from abc import ABC, abstractmethod
from typing import Any, Self

import torch
from torch import Tensor

from nnlo_lib.core.rng import derive_seed


class Compressor(ABC):
    """Encode a contiguous vector v (P,) of float32 or float64 in fewer bytes; C(v) is the decoded vector.

    C(0) = 0, and every C contracts: E|C(v) - v|^2 <= (1 - delta) |v|^2 with a delta > 0, as required by error
    feedback (Karimireddy et al. 2019, assumption A) and CHOCO-SGD; random compressors are therefore not
    scaled up to be unbiased. One instance serves one vector of one rank, step after step.
    """

    lossless = False  # whether C(v) = v always

    @classmethod
    def from_config(cls, config: Any, seed: int) -> Self:
        """Return a compressor.

        The settings in `config`, a subclass of BaseCompressionConfig, are the keyword arguments of the class.
        """
        return cls(**config.arguments)

    @abstractmethod
    def size(self, vector: Tensor) -> int:
        """Return the bytes of the payload of any vector of this length and dtype, equal on all ranks."""

    def payload_buffer(self, vector: Tensor) -> Tensor:
        """Return memory for a payload to decode into `vector`; the memory of `vector` if possible."""
        return torch.empty(self.size(vector), dtype=torch.uint8, device=vector.device)

    @abstractmethod
    def encode(self, vector: Tensor, step: int, rank: int) -> Tensor:
        """Return the payload of a vector, (size,) of uint8.

        Args:
            vector: vector to encode, (P,); not changed.
            step: step or round of the sender; selects the stream of random draws, with `rank`.
            rank: rank that sends the payload.
        """

    @abstractmethod
    def decode(self, payload: Tensor, vector: Tensor) -> None:
        """Overwrite `vector` with the decoded `payload`, of any rank and step."""

    def state(self) -> dict[str, Tensor]:
        """Return the tensors that a resumed run needs."""
        return {}

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        """Restore the tensors that `state` returned."""


def generator(seed: int, step: int, rank: int) -> torch.Generator:
    """Return a random generator; on the CPU, so that all devices draw alike.

    Args:
        seed: seed of the compressor.
        step: step or round of the sender.
        rank: rank that encodes the vector.
    """
    return torch.Generator().manual_seed(derive_seed(seed, "compression", rank, step))
