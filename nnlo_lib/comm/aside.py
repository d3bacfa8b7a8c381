"""Compute what waits for other ranks in the middle of a forward or backward pass."""

from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import TypeVar

import torch
from torch import Tensor

from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.comm.simulated import SimulatedCommunicator

T = TypeVar("T")


class Together:
    """Sums over ranks that a computation asks for on its way; all ranks ask for the same ones in the same order.

    weight: this rank's part of the samples of the step.
    """

    def __init__(self, comm: Communicator) -> None:
        self._comm, self.weight = comm, 1.0

    def compute(self, work: Callable[[], T]) -> T:
        """Do `work`, in which `add` may be called."""
        return work()

    def add(self, vector: Tensor) -> None:
        """Overwrite `vector` (values,) by the sum over ranks."""
        self._comm.allreduce(vector, "statistics")


class Aside(Together):
    """The same for simulated ranks, which take turns in one thread that others must not find in the middle of a pass.

    What torch keeps by thread (whether gradients are recorded, what autocast does, the engine's queue) would be one for
    all ranks. So `work` has a thread of its own, which stands still while the ranks take turns, and the random stream
    goes on where it was.
    """

    def compute(self, work: Callable[[], T]) -> T:
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
            super().add(vector)
        except BaseException as error:
            self._answers.put(error)  # or the thread would wait for ever
            raise
        torch.set_rng_state(drawn)
        self._answers.put(None)

    def add(self, vector: Tensor) -> None:
        self._asked.put(vector)
        if error := self._answers.get():
            raise error


def together(comm: Communicator) -> Together:
    """Return what suits the transport."""
    return Aside(comm) if isinstance(comm, SimulatedCommunicator) else Together(comm)
