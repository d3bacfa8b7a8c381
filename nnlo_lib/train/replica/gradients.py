"""Compute the gradient of a mini-batch: one rank's alone, or those of all simulated ranks together."""

from collections.abc import Callable
from itertools import pairwise
from typing import Protocol

import torch
from torch import Tensor

from nnlo_lib.comm.aside import Together
from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.data.loader import Batch
from nnlo_lib.problems.problem import Objective, Problem
from nnlo_lib.train.replica.device import seed_step
from nnlo_lib.train.replica.lone_sample import naming_lone_sample
from nnlo_lib.train.replica.precision import Precision
from nnlo_lib.train.replica.replica import Replica
from nnlo_lib.train.replica.tensors import Tensors

Measured = Callable[[], Tensor]  # the problem's sums of a batch, worked out when wanted


class Gradients(Protocol):
    """Overwrite the replica's gradient by that of a batch, in a step of the run; dropout draws from the stream `seed`.

    Raises UserError if the loss is not a number, or a single sample is to be normalized.
    """

    def __call__(self, batch: Batch, seed: int, where: str, step: int) -> Measured | None: ...


class OwnGradients:
    """One rank's gradients, computed at once, or in `parts` of a batch, one after another.

    together: where layers wait for other ranks on the way, which then all compute, those without samples too.
    """

    def __init__(
        self,
        replica: Replica,
        problem: Problem,
        tensors: Tensors,
        comm: Communicator,
        precision: Precision,
        parts: int = 1,
        together: Together | None = None,
    ) -> None:
        self._replica, self._problem, self._tensors, self._comm = replica, problem, tensors, comm
        self._precision, self._parts, self._together = precision, parts, together

    def __call__(self, batch: Batch, seed: int, where: str, step: int) -> Measured | None:
        seed_step(seed, str(self._replica.theta.device))
        if self._together is None:
            return self._compute(batch, where, step)
        self._together.weight = batch.count / batch.global_count
        return self._together.compute(lambda: self._compute(batch, where, step))

    def _compute(self, batch: Batch, where: str, step: int) -> Measured | None:
        """Add up the gradients of the parts' mean losses, by their numbers of samples."""
        parts = [
            part for part in slices(batch.count, self._parts) if part.stop > part.start or self._together
        ]
        measured: list[Measured] = []
        if not parts:
            self._replica.grad.zero_()
        for part in parts:
            share = (part.stop - part.start) / max(batch.count, 1)
            with naming_lone_sample(where):
                loss, sums = self._forward(batch, part, step)
            factor = self._precision.factor(loss.item(), where) if share else 1.0
            if part is parts[-1]:
                self._comm.computed(batch.count)
            weight = share * factor
            self._replica.backward(
                loss if weight == 1 else loss * weight, part is parts[0], part is parts[-1]
            )
            measured += [sums] if weight > 0 else []
        return added(measured)

    def _forward(self, batch: Batch, part: slice, step: int) -> Objective:
        inputs, labels = self._tensors(tuple(array[part] for array in batch.inputs), batch.labels[part])
        with self._precision.casting():
            return self._problem.objective(self._replica.network, inputs, labels, step)


def added(measured: list[Measured]) -> Measured | None:
    """Return what works out the sums of all parts; None if there are none."""
    if len(measured) < 2:
        return measured[0] if measured else None
    return lambda: torch.stack([each() for each in measured]).sum(0)


def slices(count: int, parts: int) -> list[slice]:
    """Cut `count` samples into parts as equal as can be."""
    ends = [count * number // parts for number in range(parts + 1)]
    return [slice(*each) for each in pairwise(ends)]
