"""Batches of a single sample, of which batch normalization cannot tell a variance."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.loading.loader import BatchLoader
from nnlo_lib.problems.base import Problem
from nnlo_lib.train.replica.preprocess import Preprocessor

REFUSAL = "Expected more than 1 value per channel"  # torch's


@contextmanager
def explain_batch_norm_error(where: str) -> Iterator[None]:
    """Turn torch's refusal to normalize a single sample into a sentence. Raises UserError."""
    try:
        yield
    except Exception as error:
        if REFUSAL not in str(error):
            raise
        raise UserError(
            f"{where}: a batch of one sample, or such a part, cannot be normalized: change train.batch_size, "
            "train.accumulate or parallel.ranks, or end epochs earlier by train.steps_per_epoch"
        ) from error


def check_batch_norm_batches(
    module: nn.Module, problem: Problem, tensors: Preprocessor, loader: BatchLoader, parts: int, rank: int
) -> None:
    """Raise UserError if the first or the last step of an epoch will end by a sample that cannot be normalized.

    parts: of a batch, one after another. The module is tried, and is as before: it learns nothing.
    """
    if not any(isinstance(each, _BatchNorm) for each in module.modules()):
        return
    for step in sorted({0, loader.steps_per_epoch - 1}):
        if 0 < loader.count(0, step) < 2 * parts:
            with explain_batch_norm_error(f"in step {step + 1} of each epoch, on rank {rank}"):
                _try(module, problem, tensors, loader, step)


def _try(module: nn.Module, problem: Problem, tensors: Preprocessor, loader: BatchLoader, step: int) -> None:
    """Apply the module to one sample of a step."""
    batch, before = loader.batch(0, step), [each.clone() for each in module.buffers()]
    try:
        inputs, labels = tensors(tuple(array[:1] for array in batch.inputs), batch.labels[:1])
        problem.compute_loss(module.train(), inputs, labels, 0)
    finally:
        for each, old in zip(module.buffers(), before, strict=True):
            each.copy_(old)
