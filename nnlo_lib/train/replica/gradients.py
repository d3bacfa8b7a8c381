"""Gradient of a mini-batch on one rank, and the causes of its failures.

A loss that is infinite or NaN comes from the samples, the initial weights, or the learning rate; batch
normalization cannot compute the variance of a single sample.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.core.errors import DivergedError, UserError
from nnlo_lib.data.loading.loader import Batch, BatchLoader
from nnlo_lib.data.readers.base import Indices
from nnlo_lib.problems.base import BatchLoss, Problem
from nnlo_lib.train.replica.device import seed_step
from nnlo_lib.train.replica.precision import REDUCE_RATE, Precision
from nnlo_lib.train.replica.preprocess import Preprocessor
from nnlo_lib.train.replica.replica import Replica
from nnlo_lib.train.replica.sync_batch_norm import PassCollectives

LARGE_VALUE = 100.0  # inputs and targets above it need small learning rates
REFUSAL = "Expected more than 1 value per channel"  # text of torch's error
DeferredSums = Callable[[], Tensor]  # computes the problem's sums of a batch when called


@dataclass(frozen=True)
class SampleTensors:
    """Samples of a loss."""

    inputs: tuple[Tensor, ...]
    labels: Tensor
    ids: Indices

    def numbers(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the name and the tensor of inputs and targets; classes and other indices have no scale."""
        yield from (("inputs", each) for each in self.inputs if each.is_floating_point())
        # Weighted targets are complex.
        if (numbers := self.labels.real).is_floating_point():
            yield "targets", numbers


class GradientFunction(Protocol):
    """Overwrites the replica's gradient by the gradient of a batch; returns the batch's sums, or None.

    Raises DivergedError if the loss is not finite, and UserError if batch normalization gets a single sample.
    """

    def __call__(self, batch: Batch, seed: int, where: str, step: int) -> DeferredSums | None: ...

    def finish(self) -> None:
        """Raise a DivergedError of an earlier call that was not raised yet: a GPU tells a loss after the call."""


class LocalGradients:
    """Computes the gradient of one rank's batch, at once or in parts, one after another.

    With `together`, sums over ranks inside the passes (synchronized batch normalization), ranks without samples take part in
    every pass, too.
    """

    def __init__(
        self, replica: Replica, problem: Problem, tensors: Preprocessor, comm: Communicator, precision: Precision,
        parts: int = 1, together: PassCollectives | None = None,
    ) -> None:  # fmt: skip
        self._replica, self._problem, self._tensors, self._comm = replica, problem, tensors, comm
        self._precision, self._parts, self._together = precision, parts, together
        self._check_last: Callable[[], object] | None = None  # of a loss on its way from the GPU

    def __call__(self, batch: Batch, seed: int, where: str, step: int) -> DeferredSums | None:
        seed_step(seed, str(self._replica.theta.device))
        if self._together:
            # The weight in the exchange of gradients: sums inside the pass belong to the global mean loss.
            self._together.weight = batch.count / batch.global_count
        ends = [batch.count * number // self._parts for number in range(self._parts + 1)]
        # Other ranks wait for this one inside the pass, even if its part is empty.
        parts = [slice(start, stop) for start, stop in pairwise(ends) if stop > start or self._together]
        measured: list[DeferredSums] = []
        if not parts:
            self._replica.clear_gradient()
        for part in parts:
            share = (part.stop - part.start) / max(batch.count, 1)
            with explain_batch_norm_error(where):
                (loss, sums), samples = self._forward(batch, part, step)
            factor = self._checked(loss, samples, where, step) if share else 1.0
            # The virtual clock advances before the last backward pass, which may send buckets of the gradient.
            if part is parts[-1]:
                self._comm.advance_clock(batch.count)
            # The gradient sums those of the parts' mean losses, weighted by their numbers of samples.
            weight = share * factor
            weighted = loss if weight == 1 else loss * weight
            self._replica.backward(weighted, part is parts[0], part is parts[-1])
            # Neither empty parts nor an overflow (weight NaN) contribute to the metrics.
            measured += [sums] if weight > 0 else []
        if len(measured) < 2:
            return measured[0] if measured else None
        return lambda: torch.stack([each() for each in measured]).sum(0)

    def finish(self) -> None:
        """Raise DivergedError if the loss of the last call, which a GPU tells after the call, was not finite."""
        check, self._check_last = self._check_last, None
        if check:
            check()

    def _forward(self, batch: Batch, part: slice, step: int) -> tuple[BatchLoss, SampleTensors]:
        inputs, labels = self._tensors(tuple(array[part] for array in batch.inputs), batch.labels[part])
        with self._precision.autocast_context():
            loss = self._problem.compute_loss(self._replica.network, inputs, labels, step)
        if not isinstance(loss, tuple):
            raise UserError(
                f"{type(self._problem).__name__}.compute_loss returned a {type(loss).__name__}; return BatchLoss(loss, sums), where "
                "`sums` is a function without arguments"
            )
        return loss, SampleTensors(inputs, labels, batch.ids[part])

    def _checked(self, loss: Tensor, samples: SampleTensors, where: str, step: int) -> float:
        """Return the factor of a loss; on a GPU, a loss that is not finite is an error of the next call.

        Reading the loss at once would leave the GPU without work until the backward pass arrives. Before the first step,
        and with loss scaling, whose factor depends on the loss, it is read at once.
        """
        if not loss.is_cuda or self._precision.scale or not step:
            return self._loss_factor(loss.item(), samples, where, step)
        value = torch.empty((), dtype=loss.dtype, pin_memory=True)
        value.copy_(loss.detach(), non_blocking=True)
        arrival = torch.cuda.Event()  # type: ignore[no-untyped-call]
        arrival.record()

        def check() -> None:
            arrival.synchronize()
            self._loss_factor(value.item(), samples, where, step)

        self.finish()
        self._check_last = check
        return 1.0

    def _loss_factor(self, loss: float, samples: SampleTensors, where: str, step: int) -> float:
        if math.isfinite(loss):
            return self._precision.loss_factor(loss, where)
        advice = loss_advice(samples, self._precision, self._replica.theta, step, where)
        return self._precision.loss_factor(loss, where, advice)


def loss_advice(samples: SampleTensors, precision: Precision, theta: Tensor, step: int, where: str) -> str:
    """Return what to do about a loss that is infinite or NaN although each value of its samples is usable.

    After 0 steps, the learning rate is not the cause. Raises DivergedError with the first sample that has a value which the
    model's type cannot hold.
    """
    for kind, tensor in samples.numbers():
        limit = precision.largest(kind)
        values = tensor.reshape(len(samples.ids), -1)
        # NaN compares as False.
        wrong = ~(values.abs() <= limit)
        for row in torch.nonzero(wrong.any(1)).flatten().tolist()[:1]:
            raise DivergedError(
                f"sample {samples.ids[row]} of the training split has the value {values[row][wrong[row]][0].item():.6g} "
                f"in its {kind} after normalization {where}; the type of the model ends at {limit:.5g}; correct or "
                f"remove the sample, or scale its values"
            )
    large = " and ".join(
        f"{kind} up to {tensor.abs().max().item():.3g}"
        for kind, tensor in samples.numbers()
        if tensor.numel() and tensor.abs().max() > LARGE_VALUE
    )
    scale = f"scale the samples, which have {large} (for inputs, data.normalize: standard)" if large else ""
    if step:
        return f"{scale}, or {REDUCE_RATE}" if scale else REDUCE_RATE
    if not torch.isfinite(theta).all():
        return "the initial weights have NaN or infinite values; check the model and model.weights"
    advice = scale or "check the model and the loss"
    return f"no step was made, so train.optimizer.lr is not the cause; {advice}"


@contextmanager
def explain_batch_norm_error(where: str) -> Iterator[None]:
    """Raise UserError with an explanation if torch refuses to normalize a single sample in this context."""
    try:
        yield
    except Exception as error:
        if REFUSAL not in str(error):
            raise
        raise UserError(
            f"{where}: batch normalization cannot normalize a batch, or a part of a batch, of one sample; change "
            "train.batch_size, train.accumulate or parallel.ranks, or set a smaller train.steps_per_epoch"
        ) from error


def check_batch_norm_batches(
    module: nn.Module,
    problem: Problem,
    tensors: Preprocessor,
    loader: BatchLoader,
    parts: int,
    rank: int,
    resumed: tuple[int, int] | None = None,
) -> None:
    """Raise UserError if the first or last step of an epoch, or `resumed`, would normalize a single sample.

    `resumed` is the epoch and the step after a change of the number of ranks. The check applies the module to one sample,
    then restores its buffers.
    """
    if not any(isinstance(each, _BatchNorm) for each in module.modules()):
        return
    steps = {resumed} if resumed else {(0, 0), (0, loader.steps_per_epoch - 1)}
    for epoch, step in sorted(steps):
        # Small batches are not refused by their size: one image still has many values per channel.
        if step >= loader.steps_per_epoch or not 0 < loader.count(epoch, step) < 2 * parts:
            continue
        place = f"in epoch {epoch + 1}, step {step + 1}" if resumed else f"in step {step + 1} of each epoch"
        before, batch = [each.clone() for each in module.buffers()], loader.batch(epoch, step)
        try:
            with explain_batch_norm_error(f"{place}, on rank {rank}"):
                inputs, labels = tensors(tuple(array[:1] for array in batch.inputs), batch.labels[:1])
                problem.compute_loss(module.train(), inputs, labels, 0)
        finally:
            for each, old in zip(module.buffers(), before, strict=True):
                each.copy_(old)
