"""Sums over ranks of vectors in GPU memory that do not pass through host memory."""

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor

IsDone = Callable[[], bool]
WaitUntil = Callable[[IsDone], None]  # polls until true, or raises PeerLostError


class GpuAllreduce(ABC):
    """Sum the vectors of all ranks in rank order: reduce-scatter by all-to-all, local sum, all-gather.

    Bytes and bits are the same as in the sum through host memory: GPUs add float32 and float64 as CPUs do.
    Vectors are padded to equal chunks.
    """

    def __init__(self, size: int) -> None:
        self._size = size

    @abstractmethod
    def all_to_all(self, received: Tensor, sent: Tensor) -> IsDone:
        """Start to send chunk i of `sent` to rank i and to receive every rank's chunk in `received`."""

    @abstractmethod
    def all_gather(self, received: Tensor, sent: Tensor) -> IsDone:
        """Start to gather the `sent` of all ranks in `received`."""

    def begin(self, vector: Tensor) -> Callable[[WaitUntil], None]:
        """Start the sum; return a function that waits and overwrites `vector` (P,) with the sum."""
        size = self._size
        padded = vector.new_zeros(size * -(-vector.numel() // size))
        padded[: vector.numel()] = vector
        parts = torch.empty_like(padded)
        is_done = self.all_to_all(parts, padded)

        def finish(wait: WaitUntil) -> None:
            wait(is_done)
            total, *others = parts.view(size, -1)
            for other in others:
                total.add_(other)
            # `padded` may be overwritten, because the all-to-all that read it is complete.
            wait(self.all_gather(padded, total))
            vector.copy_(padded[: vector.numel()])

        return finish
