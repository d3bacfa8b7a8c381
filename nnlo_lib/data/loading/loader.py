"""Loader of mini-batches in an order that is a function of (seed, epoch), read ahead by a thread."""

from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

import numpy as np

from nnlo_lib.data.loading.augment import Augment, Mixture
from nnlo_lib.data.loading.sampler import EpochSampler
from nnlo_lib.data.readers.base import Array, Indices, Inputs

PREFETCH_BATCHES = 2  # number of batches that the thread reads ahead
MIN_PREFETCH_BYTES = 1 << 20  # reading a smaller batch costs less than a thread switch
T = TypeVar("T")


@dataclass(frozen=True)
class Batch:
    """Mini-batch of one worker in step `index` of an epoch."""

    index: int
    # arrays (count, *shape) in the stored dtype; tensors on the device if the samples are there
    inputs: Inputs
    labels: Array
    ids: Indices
    count: int
    global_count: int

    def without_samples(self) -> "Batch":
        """Return the batch of a worker that rests in this step."""
        inputs = tuple(each[:0] for each in self.inputs)
        return replace(self, inputs=inputs, labels=self.labels[:0], ids=self.ids[:0], count=0)


class SampleSource(Protocol):
    """Samples by index: a Split, or their tensors on a device."""

    @property
    def sample_bytes(self) -> int:
        """Size of all inputs of one sample that are read from the host, in bytes."""

    def take(self, indices: Indices) -> tuple[tuple[Any, ...], Any]:
        """Return new inputs, (len(indices), *shape) each, and labels (len(indices), ...)."""


class BatchLoader:
    """Loads the samples that `sampler` selects from `split`, augments them and mixes them.

    A thread reads large batches ahead. Memory use: the batches in flight and 24 bytes per sample (its class,
    its index and its place in the epoch's order). The operating system can evict the memory-mapped pages of
    the shards.

    Without `augment`, images are loaded as stored.
    """

    def __init__(
        self, split: SampleSource, sampler: EpochSampler, augment: Augment | None = None,
        mixture: Mixture | None = None,
    ) -> None:  # fmt: skip
        self._split, self._sampler, self._augment, self._mixture = split, sampler, augment, mixture

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
        ids = self._sampler.ids(epoch, start) if start < self.steps_per_epoch else ()
        if len(ids) * self._split.sample_bytes < MIN_PREFETCH_BYTES:
            yield from batches
            return
        # Stops the thread if the consumer leaves the epoch early.
        with closing(prefetched(batches, PREFETCH_BATCHES)) as ahead:
            yield from ahead

    def batch(self, epoch: int, step: int) -> Batch:
        """Return this worker's batch in a step of an epoch."""
        ids, position = self._sampler.ids(epoch, step), self._sampler.position(epoch, step)
        mixture = self._mixture if len(ids) else None
        read = np.append(ids, self._sampler.next_id(epoch, step)) if mixture else ids
        inputs, labels = self._split.take(read)
        if self._augment:
            inputs = self._augment(inputs, epoch, position)
        if mixture:
            inputs, labels = mixture(inputs, labels, epoch, position)
        return Batch(step, inputs, labels, ids, len(ids), self._sampler.global_count(epoch, step))


def prefetched(source: Iterator[T], depth: int) -> Generator[T, None, None]:
    """Yield the items of `source`; a thread computes up to `depth` items ahead.

    An exception of `source` is raised after the items that precede it. Closing the generator stops the thread
    and waits until it has exited.
    """
    end = object()
    with ThreadPoolExecutor(1, "prefetch") as thread:
        ready = deque(thread.submit(next, source, end) for _ in range(depth + 1))
        try:
            while (item := ready.popleft().result()) is not end:
                ready.append(thread.submit(next, source, end))
                yield item  # type: ignore[misc]  # not `end`
        finally:
            for each in ready:
                each.cancel()
