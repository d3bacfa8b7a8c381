"""Which samples each worker takes in each step of an epoch."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.loading.shuffle import ShufflePurpose, shuffled
from nnlo_lib.data.readers import Array, Indices


class Sampler(ABC):
    """The part of one worker in every step, a pure function of (seed, epoch, step).

    `samples` counts what all workers use in an epoch of `steps_per_epoch` steps.
    """

    def __init__(self, steps: int, wanted: int | None) -> None:
        if wanted is not None and wanted > steps:
            raise UserError(
                f"train.steps_per_epoch {wanted}: the samples make at most {steps} steps; lower it, or train.batch_size"
            )
        self.steps_per_epoch = wanted or steps
        self._epoch: int | None = None
        self._order = np.empty(0, np.int64)
        self._before: tuple[int, Array] = (-1, np.empty(0, bool))

    @property
    def samples(self) -> int:
        """Samples of an epoch, all workers together."""
        return self._samples_through(self.steps_per_epoch - 1)

    def resume(self, epoch: int, used: Array) -> int:
        """Go on where other workers, perhaps another number of them, had used samples of an epoch's one order.

        used: (samples of the split,) bool. Return the step to go on at; it is a short one if theirs ended within it.
        """
        self._before, self._epoch = (epoch, used), None
        steps, taken = range(self.steps_per_epoch), self._already_used(epoch)
        return next((step for step in steps if self._samples_through(step) > taken), self.steps_per_epoch)

    def _already_used(self, epoch: int) -> int:
        """Return how many samples of an epoch others had used."""
        return int(np.count_nonzero(self._before[1])) if epoch == self._before[0] else 0

    def samples_before(self, epoch: int, step: int) -> int:
        """Return how many samples of an epoch all workers have taken before a step."""
        return max(self._already_used(epoch), self._samples_through(step - 1))

    def global_count(self, epoch: int, step: int) -> int:
        """Return how many samples all workers have in a step."""
        return self._samples_through(step) - self.samples_before(epoch, step)

    @abstractmethod
    def ids(self, epoch: int, step: int) -> Indices:
        """Return this worker's samples in a step."""

    @abstractmethod
    def position(self, epoch: int, step: int) -> int:
        """Return a number that no other worker's sample of the epoch has: the first id's; the next ones follow."""

    @abstractmethod
    def _samples_through(self, step: int) -> int:
        """Return how many samples all workers have taken after a step."""

    def order(self, epoch: int) -> Indices:
        """Return the order that `ids` are taken from; trimming an epoch to fewer steps leaves the end of it out."""
        if epoch != self._epoch:
            self._order, self._epoch = self._shuffle(epoch), epoch
            if epoch == self._before[0]:
                used = self._before[1][self._order]
                self._order = np.concatenate([self._order[used], self._order[~used]])
        return self._order

    @abstractmethod
    def samples_of_epoch(self, epoch: int) -> Indices:
        """Return what an epoch takes from its order: all workers' samples if they share it, else this worker's."""

    @abstractmethod
    def _shuffle(self, epoch: int) -> Indices:
        """Make the order of an epoch."""


class SharedOrderSampler(Sampler):
    """All workers walk over one order of `indices`, cut into global batches of batch_size * workers samples.

    Each worker takes a contiguous share. The last global batch is kept however small and shared evenly: a worker may
    get no sample, but never no step, so that all stay in step. Raises UserError if there are fewer samples than
    workers.
    """

    def __init__(
        self,
        indices: Indices,
        batch_size: int,
        workers: int,
        worker: int,
        seed: int,
        shuffle: bool = True,
        steps_per_epoch: int | None = None,
    ) -> None:
        _check(batch_size, workers, worker)
        if len(indices) < workers:
            raise UserError(
                f"{workers} ranks asked on a {len(indices)}-sample set; each needs at least one sample: "
                f"lower parallel.ranks, or use more samples (data.dataset, data.validation)"
            )
        self._global_batch = batch_size * workers
        super().__init__(-(-len(indices) // self._global_batch), steps_per_epoch)
        self._indices, self._seed, self._shuffled = indices, seed, shuffle
        self._workers, self._worker = workers, worker

    def ids(self, epoch: int, step: int) -> Indices:
        start, end = self._share(epoch, step)
        return self.order(epoch)[start:end]

    def position(self, epoch: int, step: int) -> int:
        return self._share(epoch, step)[0]

    def samples_of_epoch(self, epoch: int) -> Indices:
        return self.order(epoch)[: self.samples]

    def _share(self, epoch: int, step: int) -> tuple[int, int]:
        """Return this worker's part of a global batch; the first workers get one more if it does not divide."""
        share, more = divmod(self.global_count(epoch, step), self._workers)
        start = self.samples_before(epoch, step) + self._worker * share + min(self._worker, more)
        return start, start + share + (self._worker < more)

    def _samples_through(self, step: int) -> int:
        return min(len(self._indices), (step + 1) * self._global_batch)

    def _shuffle(self, epoch: int) -> Indices:
        return (
            shuffled(self._indices, self._seed, ShufflePurpose.EPOCH, epoch)
            if self._shuffled
            else self._indices
        )


class PartitionedSampler(Sampler):
    """Each worker has samples of its own, `parts[worker]`, and an order of its own.

    In step s of S every worker takes the s-th of S pieces of its order, the largest of batch_size samples: all stay
    in step, and each uses each of its samples once an epoch, however unequal the parts are.
    """

    def __init__(
        self,
        parts: Sequence[Indices],
        batch_size: int,
        worker: int,
        seed: int,
        shuffle: bool = True,
        steps_per_epoch: int | None = None,
    ) -> None:
        _check(batch_size, len(parts), worker)
        self._all_steps = -(-max(map(len, parts)) // batch_size)
        super().__init__(self._all_steps, steps_per_epoch)
        self._sizes = np.array([len(part) for part in parts])
        self._part, self._worker = parts[worker], worker
        self._seed, self._shuffled = seed, shuffle

    def ids(self, epoch: int, step: int) -> Indices:
        return self.order(epoch)[self._ends(step - 1)[self._worker] : self._ends(step)[self._worker]]

    def position(self, epoch: int, step: int) -> int:
        return int(self._sizes[: self._worker].sum() + self._ends(step - 1)[self._worker])

    def samples_of_epoch(self, epoch: int) -> Indices:
        return self.order(epoch)[: self._ends(self.steps_per_epoch - 1)[self._worker]]

    def _samples_through(self, step: int) -> int:
        return int(self._ends(step).sum())

    def _ends(self, step: int) -> Indices:
        """Return how many samples each worker has used after a step."""
        return self._sizes * (step + 1) // self._all_steps

    def _shuffle(self, epoch: int) -> Indices:
        if not self._shuffled:
            return self._part
        return shuffled(self._part, self._seed, ShufflePurpose.EPOCH, epoch, self._worker)


def _check(batch_size: int, workers: int, worker: int) -> None:
    if not 0 <= worker < workers or batch_size < 1:
        raise ValueError(f"worker {worker} of {workers} with batches of {batch_size}")
