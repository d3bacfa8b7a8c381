"""Loader of mini-batches in an order that is a function of (seed, epoch)."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

from nnlo_lib.data.loading.augment import Augment
from nnlo_lib.data.loading.prefetch import prefetched
from nnlo_lib.data.loading.sampler import EpochSampler
from nnlo_lib.data.readers import Array, Indices, Inputs
from nnlo_lib.data.store.split import Split

PREFETCH_BATCHES = 2  # number of batches that the thread reads ahead
MIN_PREFETCH_BYTES = 1 << 20  # reading a smaller batch costs less than a thread switch


@dataclass(frozen=True)
class Batch:
    """Mini-batch of one worker in step `index` of an epoch.

    Attributes:
        inputs: arrays (count, *shape) in the stored dtype.
        labels: array (count, ...).
        ids: (count,) indices of the samples in the split.
        count: number of samples of this worker.
        global_count: number of samples of all workers in this step.
    """

    index: int
    inputs: Inputs
    labels: Array
    ids: Indices
    count: int
    global_count: int


class BatchLoader:
    """Loads the samples that `sampler` selects from `split` and augments them.

    A thread reads large batches ahead. Memory use: the batches in flight and 24 bytes per sample (its class,
    its index and its place in the epoch's order). The operating system can evict the memory-mapped pages of
    the shards.

    Args:
        split: samples of the data set.
        sampler: sampler of this worker.
        augment: changes of the images; None loads them as stored.
    """

    def __init__(self, split: Split, sampler: EpochSampler, augment: Augment | None = None) -> None:
        self._split, self._sampler, self._augment = split, sampler, augment

    @property
    def samples(self) -> int:
        """Number of samples of an epoch, all workers together."""
        return self._sampler.samples

    @property
    def steps_per_epoch(self) -> int:
        """Number of steps of an epoch, the same for all workers."""
        return self._sampler.steps_per_epoch

    def count(self, epoch: int, step: int) -> int:
        """Return the number of samples of this worker in a step."""
        return len(self._sampler.ids(epoch, step))

    def resume(self, epoch: int, used: Array) -> int:
        """Skip the samples of an epoch marked in `used`, (samples,) bool; return the step to resume at."""
        return self._sampler.resume(epoch, used)

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """Yield this worker's batches of an epoch, starting at step `start`."""
        batches = (self.batch(epoch, step) for step in range(start, self.steps_per_epoch))
        if not self._should_prefetch(epoch, start):
            yield from batches
            return
        # Stops the thread if the consumer leaves the epoch early.
        with closing(prefetched(batches, PREFETCH_BATCHES)) as ahead:
            yield from ahead

    def batch(self, epoch: int, step: int) -> Batch:
        """Return this worker's batch in a step of an epoch."""
        ids = self._sampler.ids(epoch, step)
        inputs, labels = self._split.take(ids)
        if self._augment:
            inputs = self._augment(inputs, epoch, self._sampler.position(epoch, step))
        return Batch(step, inputs, labels, ids, len(ids), self._sampler.global_count(epoch, step))

    def _should_prefetch(self, epoch: int, start: int) -> bool:
        ids = self._sampler.ids(epoch, start) if start < self.steps_per_epoch else ()
        return len(ids) * self._split.sample_bytes >= MIN_PREFETCH_BYTES
