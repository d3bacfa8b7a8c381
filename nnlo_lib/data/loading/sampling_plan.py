"""Plan of the samples that each worker uses, derived from the partition of the training samples."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nnlo_lib.data.loading.sampler import EpochSampler, PartitionedSampler, SharedOrderSampler
from nnlo_lib.data.readers import Array, Indices


@dataclass(frozen=True)
class SamplingPlan:
    """Creates the sampler of each process that computes gradients.

    Attributes:
        parts: training samples of each process; all processes share a single part.
        workers: number of processes that compute gradients.
        batch_size: samples per step and worker.
        dynamic: True if the batches of an epoch form one sequence and each batch goes to the first idle
            worker.
        processes: number of processes of a worker.
    """

    parts: Sequence[Indices]
    workers: int
    batch_size: int
    seed: int
    steps_per_epoch: int | None
    dynamic: bool
    processes: int = 1

    def sampler(self, worker: int) -> EpochSampler:
        """Return the sampler of a worker."""
        steps = self.steps_per_epoch
        if self.dynamic:
            # `steps_per_epoch` counts the steps of one worker, but the sequence serves all of them.
            steps = steps and steps * self.workers
            return SharedOrderSampler(self.parts[0], self.batch_size, 1, 0, self.seed, steps_per_epoch=steps)
        if len(self.parts) > 1:
            return PartitionedSampler(
                self.parts,
                self.batch_size,
                worker,
                self.seed,
                steps_per_epoch=steps,
                processes=self.processes,
            )
        return SharedOrderSampler(
            self.parts[0],
            self.batch_size,
            self.workers,
            worker,
            self.seed,
            steps_per_epoch=steps,
            processes=self.processes,
        )

    def expected_uses(self, samples: int, epoch: int) -> Array:
        """Return how often an epoch (from 0) should use each sample of the split: (samples,), 0 or 1."""
        used = list(self.parts)
        if self.steps_per_epoch is not None:
            # One call per part: a sampler of a shared order returns the samples of all workers.
            used = [self.sampler(owner).samples_of_epoch(epoch) for owner in range(len(self.parts))]
        counts = np.zeros(samples, np.uint8)
        counts[np.concatenate(used)] = 1
        return counts
