"""Gradient of a mini-batch on one rank."""

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Protocol

import torch
from torch import Tensor

from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.data.loading.loader import Batch
from nnlo_lib.problems.base import BatchLoss, Problem
from nnlo_lib.train.evaluation.divergence import SampleTensors, loss_advice
from nnlo_lib.train.replica.batch_norm_check import explain_batch_norm_error
from nnlo_lib.train.replica.device import seed_step
from nnlo_lib.train.replica.precision import Precision
from nnlo_lib.train.replica.preprocess import Preprocessor
from nnlo_lib.train.replica.replica import Replica
from nnlo_lib.train.replica.sync_batch_norm import PassCollectives

DeferredSums = Callable[[], Tensor]  # computes the problem's sums of a batch when called


class GradientFunction(Protocol):
    """Overwrites the replica's gradient by the gradient of a batch; returns the batch's sums, or None.

    Args:
        batch: mini-batch of this rank.
        seed: seed of the random stream for dropout.
        where: place in the run, for error messages.
        step: step of the run.

    Raises:
        DivergedError: if the loss is not finite.
        UserError: if batch normalization gets a single sample.
    """

    def __call__(self, batch: Batch, seed: int, where: str, step: int) -> DeferredSums | None: ...


class LocalGradients:
    """Computes the gradient of one rank's batch, at once or in parts, one after another.

    Args:
        replica: replica of this rank.
        problem: problem that computes the loss.
        tensors: preprocessor of the batches.
        comm: communicator, whose virtual clock the computation advances.
        precision: dtype, autocast and loss scaling.
        parts: number of parts of a batch (train.accumulate).
        together: sums over ranks inside the passes (synchronized batch normalization); if set, ranks without
            samples take part in every pass, too. None for passes of this rank alone.
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
        if self._together:
            # The same weight as in the exchange of gradients, so that sums inside the pass belong to the global
            # mean loss.
            self._together.weight = batch.count / batch.global_count
        parts = [
            part
            for part in micro_batch_slices(batch.count, self._parts)
            # Other ranks wait for this one inside the pass, even if its part is empty.
            if part.stop > part.start or self._together
        ]
        measured: list[DeferredSums] = []
        if not parts:
            self._replica.grad.zero_()
        for part in parts:
            share = (part.stop - part.start) / max(batch.count, 1)
            with explain_batch_norm_error(where):
                (loss, sums), samples = self._forward(batch, part, step)
            factor = self._loss_factor(loss.item(), samples, where, step) if share else 1.0
            # The virtual clock advances before the last backward pass, which may start to send buckets of
            # the gradient.
            if part is parts[-1]:
                self._comm.advance_clock(batch.count)
            # The gradient sums those of the parts' mean losses, weighted by their numbers of samples.
            weight = share * factor
            self._replica.backward(
                loss if weight == 1 else loss * weight, part is parts[0], part is parts[-1]
            )
            # Neither empty parts nor an overflow (weight NaN) contribute to the metrics.
            measured += [sums] if weight > 0 else []
        return combine_sums(measured)

    def _forward(self, batch: Batch, part: slice, step: int) -> tuple[BatchLoss, SampleTensors]:
        inputs, labels = self._tensors(tuple(array[part] for array in batch.inputs), batch.labels[part])
        with self._precision.autocast_context():
            loss = self._problem.compute_loss(self._replica.network, inputs, labels, step)
        return loss, SampleTensors(inputs, labels, batch.ids[part])

    def _loss_factor(self, loss: float, samples: SampleTensors, where: str, step: int) -> float:
        if math.isfinite(loss):
            return self._precision.loss_factor(loss, where)
        advice = loss_advice(samples, self._precision, self._replica.theta, step, where)
        return self._precision.loss_factor(loss, where, advice)


def combine_sums(measured: list[DeferredSums]) -> DeferredSums | None:
    """Return a function that adds the sums of all parts; None if `measured` is empty."""
    if len(measured) < 2:
        return measured[0] if measured else None
    return lambda: torch.stack([each() for each in measured]).sum(0)


def micro_batch_slices(count: int, parts: int) -> list[slice]:
    """Return slices that divide `count` samples into `parts` parts of nearly equal size."""
    ends = [count * number // parts for number in range(parts + 1)]
    return [slice(*each) for each in pairwise(ends)]
