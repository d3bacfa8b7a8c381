"""Mini-batches in an order that anyone can compute again from (seed, epoch)."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

from nnlo_lib.data.loading.augment import Augment
from nnlo_lib.data.loading.prefetch import prefetched
from nnlo_lib.data.loading.sampler import Sampler
from nnlo_lib.data.readers import Array, Indices, Inputs
from nnlo_lib.data.store.split import Split

PREFETCH_BATCHES = 2  # batches made ahead
MIN_PREFETCH_BYTES = 1 << 20  # bytes of a batch from which reading it costs more than a change of thread


@dataclass(frozen=True)
class Batch:
    """What one worker learns from in step `index` of an epoch.

    `inputs` are arrays (count, *shape) as they are stored, `labels` (count, ...), `ids` (count,) the samples' places
    in the split; `global_count` counts the samples of all workers in this step.
    """

    index: int
    inputs: Inputs
    labels: Array
    ids: Indices
    count: int
    global_count: int


class BatchLoader:
    """Read what `sampler` says from `split`, and change it by `augment`; large batches are read ahead by a thread.

    In memory are the batches under way and, of each sample, 24 bytes: its class, its index and its place in the
    epoch's order; what is mapped of the shards is the system's to take back.
    """

    def __init__(self, split: Split, sampler: Sampler, augment: Augment | None = None) -> None:
        self._split, self._sampler, self._augment = split, sampler, augment

    @property
    def samples(self) -> int:
        """Samples of an epoch, all workers together."""
        return self._sampler.samples

    @property
    def steps_per_epoch(self) -> int:
        """Steps of an epoch, the same for all workers."""
        return self._sampler.steps_per_epoch

    def count(self, epoch: int, step: int) -> int:
        """Return how many samples this worker has in a step."""
        return len(self._sampler.ids(epoch, step))

    def resume(self, epoch: int, used: Array) -> int:
        """Leave out what others used of an epoch, (samples,) bool; return the step to go on at."""
        return self._sampler.resume(epoch, used)

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """Yield this worker's batches of an epoch from step `start` on."""
        batches = (self.batch(epoch, step) for step in range(start, self.steps_per_epoch))
        if not self._should_prefetch(epoch, start):
            yield from batches
            return
        with closing(prefetched(batches, PREFETCH_BATCHES)) as ahead:
            yield from ahead

    def batch(self, epoch: int, step: int) -> Batch:
        """Return one batch of an epoch."""
        ids = self._sampler.ids(epoch, step)
        inputs, labels = self._split.take(ids)
        if self._augment:
            inputs = self._augment(inputs, epoch, self._sampler.position(epoch, step))
        return Batch(step, inputs, labels, ids, len(ids), self._sampler.global_count(epoch, step))

    def _should_prefetch(self, epoch: int, start: int) -> bool:
        ids = self._sampler.ids(epoch, start) if start < self.steps_per_epoch else ()
        return len(ids) * self._split.sample_bytes >= MIN_PREFETCH_BYTES
