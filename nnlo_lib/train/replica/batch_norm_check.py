"""Checks for batches of one sample, for which batch normalization cannot compute a variance."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.loading.loader import Batch, BatchLoader
from nnlo_lib.problems.base import Problem
from nnlo_lib.train.replica.preprocess import Preprocessor

REFUSAL = "Expected more than 1 value per channel"  # text of torch's error


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


class ResumedStep(NamedTuple):
    """The first step after a change of the number of ranks, which has fewer samples than the others."""

    epoch: int
    step: int


def check_batch_norm_batches(
    module: nn.Module,
    problem: Problem,
    tensors: Preprocessor,
    loader: BatchLoader,
    parts: int,
    rank: int,
    resumed: ResumedStep | None = None,
) -> None:
    """Raise UserError if the first or last step of an epoch, or `resumed`, would normalize a single sample.

    The check applies the module to one sample, then restores its buffers; it changes no parameters.

    Args:
        module: network of the rank.
        problem: problem that computes the loss.
        tensors: preprocessor of the batches.
        loader: this worker's batches.
        parts: number of parts into which a batch is divided (train.accumulate).
        rank: rank, for the error message.
        resumed: checked instead of the first and last step of the first epoch.
    """
    if not any(isinstance(each, _BatchNorm) for each in module.modules()):
        return
    epoch = resumed.epoch if resumed else 0
    for step in [resumed.step] if resumed else sorted({0, loader.steps_per_epoch - 1}):
        if step < loader.steps_per_epoch and 0 < loader.count(epoch, step) < 2 * parts:
            place = (
                f"in epoch {epoch + 1}, step {step + 1}" if resumed else f"in step {step + 1} of each epoch"
            )
            # Small batches are not refused by their size: one sample of an image still has many values per
            # channel.
            with explain_batch_norm_error(f"{place}, on rank {rank}"):
                _try(module, problem, tensors, loader.batch(epoch, step))


def _try(module: nn.Module, problem: Problem, tensors: Preprocessor, batch: Batch) -> None:
    """Compute the loss of one sample of a batch; restore the module's buffers.

    Args:
        module: network of the rank.
        problem: problem that computes the loss.
        tensors: preprocessor of the batch.
        batch: batch of this worker.
    """
    before = [each.clone() for each in module.buffers()]
    try:
        inputs, labels = tensors(tuple(array[:1] for array in batch.inputs), batch.labels[:1])
        problem.compute_loss(module.train(), inputs, labels, 0)
    finally:
        for each, old in zip(module.buffers(), before, strict=True):
            each.copy_(old)
