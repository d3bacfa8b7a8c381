"""Sums of vectors in GPU memory that do not pass through the host's."""

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor

IsDone = Callable[[], bool]
WaitUntil = Callable[[IsDone], None]  # polls until true, or says who does not come


class GpuAllreduce(ABC):
    """Adds vectors of all ranks in rank order: reduce-scatter by all-to-all, local sum, all-gather.

    The bytes and the bits of the sum through host memory: GPUs add float32 and float64 as processors do. Vectors are
    padded to equal chunks.
    """

    def __init__(self, size: int) -> None:
        self._size = size

    @abstractmethod
    def all_to_all(self, received: Tensor, sent: Tensor) -> IsDone:
        """Begin to give rank i chunk i of `sent` and to gather everyone's for us in `received`."""

    @abstractmethod
    def all_gather(self, received: Tensor, sent: Tensor) -> IsDone:
        """Begin to gather everyone's `sent` in `received`."""

    def begin(self, vector: Tensor) -> Callable[[WaitUntil], None]:
        """Start to sum; return what overwrites `vector` (P,) by the sum over ranks, given how to wait."""
        size = self._size
        padded = vector.new_zeros(size * -(-vector.numel() // size))
        padded[: vector.numel()] = vector
        parts = torch.empty_like(padded)
        met = self.all_to_all(parts, padded)

        def finish(wait: WaitUntil) -> None:
            wait(met)
            total, *others = parts.view(size, -1)
            for other in others:
                total.add_(other)
            wait(self.all_gather(padded, total))
            vector.copy_(padded[: vector.numel()])

        return finish
