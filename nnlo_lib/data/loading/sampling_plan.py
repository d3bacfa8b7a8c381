"""Which samples a training uses, and in whose order: what follows from their division among workers."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nnlo_lib.data.loading.sampler import PartitionedSampler, Sampler, SharedOrderSampler
from nnlo_lib.data.readers import Array, Indices


@dataclass(frozen=True)
class SamplingPlan:
    """A walk over `parts`: a single one is shared by all workers, else each worker has its own.

    dynamic: an epoch is one walk, whose steps go to whoever takes them.
    """

    parts: Sequence[Indices]
    workers: int
    batch_size: int
    seed: int
    steps_per_epoch: int | None
    dynamic: bool

    def sampler(self, worker: int) -> Sampler:
        """Return what a worker takes."""
        steps = self.steps_per_epoch
        if self.dynamic:
            steps = steps and steps * self.workers
            return SharedOrderSampler(self.parts[0], self.batch_size, 1, 0, self.seed, steps_per_epoch=steps)
        if len(self.parts) > 1:
            return PartitionedSampler(self.parts, self.batch_size, worker, self.seed, steps_per_epoch=steps)
        return SharedOrderSampler(
            self.parts[0], self.batch_size, self.workers, worker, self.seed, steps_per_epoch=steps
        )

    def expected_uses(self, samples: int, epoch: int) -> Array:
        """Return how often an epoch, counted from 0, is to use each of the training split's `samples`: 0 or 1."""
        used = list(self.parts)
        if self.steps_per_epoch is not None:
            used = [self.sampler(owner).samples_of_epoch(epoch) for owner in range(len(self.parts))]
        counts = np.zeros(samples, np.uint8)
        counts[np.concatenate(used)] = 1
        return counts
