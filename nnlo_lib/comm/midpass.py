"""Sums over ranks in the middle of a forward or backward pass."""

from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import TypeVar

import torch
from torch import Tensor

T = TypeVar("T")


class PassCollectives:
    """Sums over ranks that a pass requests while it runs; all ranks request the same sums in the same order.

    Args:
        allreduce: the communicator's method, called with a vector and a purpose.

    Attributes:
        weight: this rank's share of the samples of the step.
    """

    def __init__(self, allreduce: Callable[[Tensor, str], None]) -> None:
        self._allreduce, self.weight = allreduce, 1.0

    def run(self, work: Callable[[], T]) -> T:
        """Run `work`, which may call `allreduce`, and return its result."""
        return work()

    def allreduce(self, vector: Tensor) -> None:
        """Overwrite `vector` (values,) with the sum over ranks."""
        self._allreduce(vector, "statistics")


class ThreadedPassCollectives(PassCollectives):
    """PassCollectives of simulated ranks, which take turns in one thread.

    torch keeps state per thread (whether gradients are recorded, autocast, the autograd engine's queue),
    which all ranks would share if one of them paused in the middle of a pass. Therefore `work` runs in a
    thread of its own, which is blocked while the ranks take turns. After each sum the random stream is set
    back to its state before the sum.
    """

    def run(self, work: Callable[[], T]) -> T:
        self._requests: SimpleQueue[Tensor | None] = SimpleQueue()
        self._answers: SimpleQueue[BaseException | None] = SimpleQueue()
        outcome: list[T | BaseException] = []
        # A daemon: the interpreter must exit even if an error of another rank leaves the thread blocked.
        thread = Thread(target=self._work, args=(work, outcome), daemon=True)
        thread.start()
        while (vector := self._requests.get()) is not None:
            self._answer(vector)
        thread.join()
        (result,) = outcome
        if isinstance(result, BaseException):
            raise result
        return result

    def _work(self, work: Callable[[], T], outcome: list[T | BaseException]) -> None:
        try:
            outcome.append(work())
        except BaseException as error:
            # Python only prints an exception that ends a thread; `run` raises it in the greenlet of the rank.
            outcome.append(error)
        self._requests.put(None)

    def _answer(self, vector: Tensor) -> None:
        # Other ranks run during the sum and reseed torch's default generator, which all ranks share.
        drawn = torch.get_rng_state()
        try:
            super().allreduce(vector)
        except BaseException as error:
            self._answers.put(error)  # otherwise the thread would wait forever
            raise
        torch.set_rng_state(drawn)
        self._answers.put(None)

    def allreduce(self, vector: Tensor) -> None:
        self._requests.put(vector)
        if error := self._answers.get():
            raise error
