"""Compute the gradient of a mini-batch: one rank's alone, or those of all simulated ranks together."""

import math
from collections.abc import Callable
from typing import Protocol

from torch import Tensor

from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.data.loader import Batch
from nnlo_lib.errors import DivergedError
from nnlo_lib.problems.classification import Classification
from nnlo_lib.train.device import seed_step
from nnlo_lib.train.replica import Replica
from nnlo_lib.train.tensors import Tensors

Measured = Callable[[], Tensor]  # the problem's sums of a batch, worked out when wanted


class Gradients(Protocol):
    """Overwrite the replica's gradient by that of a batch; dropout draws from the stream `seed`.

    Raises UserError if the loss is not a number.
    """

    def __call__(self, batch: Batch, seed: int, where: str) -> Measured: ...


class OwnGradients:
    """One rank's gradients, computed at once."""

    def __init__(
        self, replica: Replica, problem: Classification, tensors: Tensors, comm: Communicator
    ) -> None:
        self._replica, self._problem, self._tensors, self._comm = replica, problem, tensors, comm

    def __call__(self, batch: Batch, seed: int, where: str) -> Measured:
        seed_step(seed, str(self._replica.theta.device))
        inputs, labels = self._tensors(batch.inputs, batch.labels)
        scores = self._replica.forward(*inputs)
        loss = self._problem.loss(scores, labels)
        check_loss(loss.item(), where)
        self._comm.computed(batch.count)
        self._replica.backward(loss)
        return lambda: self._problem.sums(scores, labels, loss)


def check_loss(loss: float, where: str) -> None:
    """Raise DivergedError if the loss is infinite or not a number."""
    if not math.isfinite(loss):
        raise DivergedError(f"the loss became {loss} {where}; a smaller train.optimizer.lr usually helps")
