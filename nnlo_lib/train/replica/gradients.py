"""Compute the gradient of a mini-batch: one rank's alone, or those of all simulated ranks together."""

from collections.abc import Callable
from itertools import pairwise
from typing import Protocol

import torch
from torch import Tensor

from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.comm.midpass import PassCollectives
from nnlo_lib.data.loading.loader import Batch
from nnlo_lib.problems.base import BatchLoss, Problem
from nnlo_lib.train.replica.batch_norm_check import explain_batch_norm_error
from nnlo_lib.train.replica.device import seed_step
from nnlo_lib.train.replica.precision import Precision
from nnlo_lib.train.replica.preprocess import Preprocessor
from nnlo_lib.train.replica.replica import Replica

DeferredSums = Callable[[], Tensor]  # the problem's sums of a batch, worked out when wanted


class GradientFunction(Protocol):
    """Overwrite the replica's gradient by that of a batch, in a step of the run; dropout draws from the stream `seed`.

    Raises UserError if the loss is not a number, or a single sample is to be normalized.
    """

    def __call__(self, batch: Batch, seed: int, where: str, step: int) -> DeferredSums | None: ...


class LocalGradients:
    """One rank's gradients, computed at once, or in `parts` of a batch, one after another.

    together: where layers wait for other ranks on the way, which then all compute, those without samples too.
    """

    def __init__(
        self,
        replica: Replica,
        problem: Problem,
        tensors: Preprocessor,
        comm: Communicator,
        precision: Precision,
        parts: int = 1,
        together: PassCollectives | None = None,
    ) -> None:
        self._replica, self._problem, self._tensors, self._comm = replica, problem, tensors, comm
        self._precision, self._parts, self._together = precision, parts, together

    def __call__(self, batch: Batch, seed: int, where: str, step: int) -> DeferredSums | None:
        seed_step(seed, str(self._replica.theta.device))
        if self._together is None:
            return self._compute(batch, where, step)
        self._together.weight = batch.count / batch.global_count
        return self._together.run(lambda: self._compute(batch, where, step))

    def _compute(self, batch: Batch, where: str, step: int) -> DeferredSums | None:
        """Add up the gradients of the parts' mean losses, by their numbers of samples."""
        parts = [
            part
            for part in micro_batch_slices(batch.count, self._parts)
            if part.stop > part.start or self._together
        ]
        measured: list[DeferredSums] = []
        if not parts:
            self._replica.grad.zero_()
        for part in parts:
            share = (part.stop - part.start) / max(batch.count, 1)
            with explain_batch_norm_error(where):
                loss, sums = self._forward(batch, part, step)
            factor = self._precision.loss_factor(loss.item(), where) if share else 1.0
            if part is parts[-1]:
                self._comm.advance_clock(batch.count)
            weight = share * factor
            self._replica.backward(
                loss if weight == 1 else loss * weight, part is parts[0], part is parts[-1]
            )
            measured += [sums] if weight > 0 else []
        return combine_sums(measured)

    def _forward(self, batch: Batch, part: slice, step: int) -> BatchLoss:
        inputs, labels = self._tensors(tuple(array[part] for array in batch.inputs), batch.labels[part])
        with self._precision.autocast_context():
            return self._problem.compute_loss(self._replica.network, inputs, labels, step)


def combine_sums(measured: list[DeferredSums]) -> DeferredSums | None:
    """Return what works out the sums of all parts; None if there are none."""
    if len(measured) < 2:
        return measured[0] if measured else None
    return lambda: torch.stack([each() for each in measured]).sum(0)


def micro_batch_slices(count: int, parts: int) -> list[slice]:
    """Cut `count` samples into parts as equal as can be."""
    ends = [count * number // parts for number in range(parts + 1)]
    return [slice(*each) for each in pairwise(ends)]
