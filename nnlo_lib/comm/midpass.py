"""Compute what waits for other ranks in the middle of a forward or backward pass."""

from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import TypeVar

import torch
from torch import Tensor

T = TypeVar("T")


class PassCollectives:
    """Sums over ranks that a computation asks for on its way; all ranks ask for the same ones in the same order.

    allreduce: the communicator's, of a vector for a purpose. weight: this rank's part of the samples of the step.
    """

    def __init__(self, allreduce: Callable[[Tensor, str], None]) -> None:
        self._allreduce, self.weight = allreduce, 1.0

    def run(self, work: Callable[[], T]) -> T:
        """Do `work`, in which `allreduce` may be called."""
        return work()

    def allreduce(self, vector: Tensor) -> None:
        """Overwrite `vector` (values,) by the sum over ranks."""
        self._allreduce(vector, "statistics")


class ThreadedPassCollectives(PassCollectives):
    """The same for simulated ranks, which take turns in one thread that others must not find in the middle of a pass.

    What torch keeps by thread (whether gradients are recorded, what autocast does, the engine's queue) would be one for
    all ranks. So `work` has a thread of its own, which stands still while the ranks take turns, and the random stream
    goes on where it was.
    """

    def run(self, work: Callable[[], T]) -> T:
        self._asked: SimpleQueue[Tensor | None] = SimpleQueue()
        self._answers: SimpleQueue[BaseException | None] = SimpleQueue()
        outcome: list[T | BaseException] = []
        thread = Thread(target=self._work, args=(work, outcome), daemon=True)
        thread.start()
        while (vector := self._asked.get()) is not None:
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
            outcome.append(error)
        self._asked.put(None)

    def _answer(self, vector: Tensor) -> None:
        drawn = torch.get_rng_state()
        try:
            super().allreduce(vector)
        except BaseException as error:
            self._answers.put(error)  # or the thread would wait for ever
            raise
        torch.set_rng_state(drawn)
        self._answers.put(None)

    def allreduce(self, vector: Tensor) -> None:
        self._asked.put(vector)
        if error := self._answers.get():
            raise error
