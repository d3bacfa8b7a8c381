"""Samplers: selection of the samples of each worker in each step of an epoch.

Workers share one order of the samples, or have their own samples. Random orders depend only on their key.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum

import numpy as np

from nnlo_lib.core.errors import UserError
from nnlo_lib.data.readers.base import Array, Indices


class ShufflePurpose(IntEnum):
    """Purpose of a random stream; streams of different purposes are independent."""

    # The numbers are part of the keys of the streams: another number changes the results of every run.
    EPOCH = 1
    VALIDATION = 2
    AUGMENT = 3
    PROCESSES = 4
    MIXTURE = 5


def shuffled(indices: Indices, seed: int, purpose: ShufflePurpose, *coordinates: int) -> Indices:
    """Return `indices` permuted by the random stream of (seed, purpose, coordinates).

    The samples are sorted by raw 64-bit draws: numpy guarantees that these never change, but does not
    guarantee this for its shuffle. Coordinates are further parts of the key, for example epoch and worker.
    """
    stream = np.random.PCG64(np.random.SeedSequence([seed, purpose, *(coordinates or (0,))]))
    # Stable, so that even equal draws are sorted in the same way by every version of numpy.
    return indices[np.argsort(stream.random_raw(len(indices)), kind="stable")]


class EpochSampler(ABC):
    """Selects the samples of one worker in every step.

    Invariant: the selection is a pure function of (seed, epoch, step) and of the samples given to `resume`.

    Raises UserError if the plan has more steps than the `steps` in which all workers together use all samples once.
    """

    def __init__(self, plan: "SamplingPlan", worker: int, steps: int) -> None:
        wanted = plan.steps_per_epoch
        if wanted is not None and wanted > steps:
            raise UserError(
                f"train.steps_per_epoch: {wanted} is more than the {steps} steps that use every sample once; lower "
                f"train.steps_per_epoch or train.batch_size"
            )
        self.steps_per_epoch = wanted or steps
        self._plan, self._worker, self._offset = plan, worker, 0
        self._epoch: int | None = None
        self._order = np.empty(0, np.int64)
        self._before: tuple[int, Array] = (-1, np.empty(0, bool))

    @property
    def samples(self) -> int:
        """Number of samples of an epoch of `steps_per_epoch` steps, all workers together."""
        return self._samples_through(self.steps_per_epoch - 1)

    def resume(self, epoch: int, used: Array) -> int:
        """Resume an epoch of which previous workers, possibly another number of them, used some samples.

        The previous workers must have shared one order. The used samples move to the front of this order.

        Args:
            used: (samples of the split,) bool, True for each used sample.
        Returns:
            The step to resume at; it has fewer samples than the others if the used samples end within it.
        """
        # Without a cached epoch, `order` is computed again and takes the used samples into account.
        self._before, self._epoch = (epoch, used), None
        steps, taken = range(self.steps_per_epoch), self._already_used(epoch)
        return next((step for step in steps if self._samples_through(step) > taken), self.steps_per_epoch)

    def _already_used(self, epoch: int) -> int:
        """Return the number of samples of an epoch that were used before `resume`."""
        return int(np.count_nonzero(self._before[1])) if epoch == self._before[0] else 0

    def samples_before(self, epoch: int, step: int) -> int:
        """Return the number of samples of an epoch that all workers have used before a step."""
        return max(self._already_used(epoch), self._samples_through(step - 1))

    def global_count(self, epoch: int, step: int) -> int:
        """Return the number of samples of all workers in a step."""
        return self._samples_through(step) - self.samples_before(epoch, step)

    def ids(self, epoch: int, step: int) -> Indices:
        """Return the indices of this worker's samples in a step."""
        return self.order(epoch)[slice(*self._span(epoch, step))]

    def next_id(self, epoch: int, step: int) -> Indices:
        """Return (1,) the sample after this worker's samples of a step in the order, the first after the last."""
        order = self.order(epoch)
        return order[[self._span(epoch, step)[1] % len(order)]]

    def position(self, epoch: int, step: int) -> int:
        """Return the position of this worker's first sample of a step; its other samples follow.

        Positions are unique among all samples of all workers in an epoch.
        """
        return self._offset + self._span(epoch, step)[0]

    @abstractmethod
    def _span(self, epoch: int, step: int) -> tuple[int, int]:
        """Return (start, end) of this worker's samples of a step in the order."""

    @abstractmethod
    def _samples_through(self, step: int) -> int:
        """Return the number of samples that all workers have used after a step."""

    def order(self, epoch: int) -> Indices:
        """Return the order from which `ids` takes samples; an epoch with fewer steps does not use its end."""
        if epoch != self._epoch:
            self._order, self._epoch = self._shuffle(epoch), epoch
            if epoch == self._before[0]:
                # The steps before the resumption then cover exactly the used samples, whatever the number of
                # workers was.
                used = self._before[1][self._order]
                self._order = np.concatenate([self._order[used], self._order[~used]])
        return self._order

    @abstractmethod
    def samples_of_epoch(self, epoch: int) -> Indices:
        """Return the samples of an epoch: of all workers if they share one order, else of this worker."""

    @abstractmethod
    def _shuffle(self, epoch: int) -> Indices:
        """Compute the order of an epoch."""


class SharedOrderSampler(EpochSampler):
    """EpochSampler for workers that share one order of the samples.

    The order is cut into global batches of batch_size * workers samples. Each worker takes a contiguous share
    of every global batch. The last global batch is kept and shared evenly even if it is small: a worker may
    get no sample in it, but has the same number of steps as the others.

    Raises UserError if there are fewer samples than workers, or too few for `steps_per_epoch`.
    """

    def __init__(self, plan: "SamplingPlan", worker: int) -> None:
        (self._indices,) = plan.parts
        if len(self._indices) < plan.workers:
            raise UserError(
                f"parallel.ranks: {plan.workers} ranks for {len(self._indices)} training samples, but each rank needs at least "
                f"one; lower parallel.ranks, or use more samples (data.dataset, data.validation)"
            )
        self._global_batch = plan.batch_size * (plan.workers // plan.processes)
        super().__init__(plan, worker, -(-len(self._indices) // self._global_batch))

    def samples_of_epoch(self, epoch: int) -> Indices:
        return self.order(epoch)[: self.samples]

    def _span(self, epoch: int, step: int) -> tuple[int, int]:
        # Shares of workers differ by at most one sample.
        worker, process = divmod(self._worker, self._plan.processes)
        start = self.samples_before(epoch, step)
        whole = start, start + self.global_count(epoch, step)
        of_worker = _even_part(*whole, self._plan.workers // self._plan.processes, worker)
        return _even_part(*of_worker, self._plan.processes, process)

    def _samples_through(self, step: int) -> int:
        return min(len(self._indices), (step + 1) * self._global_batch)

    def _shuffle(self, epoch: int) -> Indices:
        orders = self._plan.orders
        if epoch not in orders:
            orders.clear()
            orders[epoch] = shuffled(self._indices, self._plan.seed, ShufflePurpose.EPOCH, epoch)
        return orders[epoch]


def _even_part(start: int, end: int, parts: int, part: int) -> tuple[int, int]:
    """Return (start, end) of piece `part`, from 0, of `parts` pieces of a range; lengths differ by at most one."""
    size, more = divmod(end - start, parts)
    start += part * size + min(part, more)
    return start, start + size + (part < more)


class PartitionedSampler(EpochSampler):
    """EpochSampler for workers that each have their own samples, `parts[worker]`, and their own order.

    In step s of S every worker takes the s-th of S pieces of its order; the largest pieces have batch_size
    samples. All workers have the same number of steps and use each of their samples once an epoch, even if
    the parts differ in size. With `stream`, the order follows the part, and is random within a window only.

    Raises UserError if there are too few samples for `steps_per_epoch`, or for the window.
    """

    def __init__(self, plan: "SamplingPlan", worker: int) -> None:
        sizes = np.array([len(part) for part in plan.parts])
        self._process = np.arange(len(plan.parts)) % plan.processes
        self._totals = sizes.reshape(-1, plan.processes).sum(1).repeat(plan.processes)
        # Division, rounded up: the worker with the most samples determines the number of steps.
        self._all_steps = -(-int(self._totals.max()) // plan.batch_size)
        super().__init__(plan, worker, self._all_steps)
        self._offset = int(sizes[:worker].sum())
        if plan.stream:
            check_window(plan.stream[0], int(self._totals.min()))

    def _span(self, epoch: int, step: int) -> tuple[int, int]:
        return int(self._ends(step - 1)[self._worker]), int(self._ends(step)[self._worker])

    def samples_of_epoch(self, epoch: int) -> Indices:
        return self.order(epoch)[: self._ends(self.steps_per_epoch - 1)[self._worker]]

    def _samples_through(self, step: int) -> int:
        return int(self._ends(step).sum())

    def _ends(self, step: int) -> Indices:
        """Return the number of samples that each process has used after a step, (processes of all workers,)."""
        # Integer arithmetic ends exactly at the size of each part in the last step; step -1 gives 0. The first
        # processes of a worker have the larger parts.
        of_worker = self._totals * (step + 1) // self._all_steps
        processes = self._plan.processes
        of_process: Indices = (of_worker + processes - 1 - self._process) // processes
        return of_process

    def _shuffle(self, epoch: int) -> Indices:
        plan, part = self._plan, self._plan.parts[self._worker]
        places = shuffled(np.arange(len(part)), plan.seed, ShufflePurpose.EPOCH, epoch, self._worker)
        if plan.stream is None:
            return part[places]
        window = -(-plan.stream[0] // plan.processes)
        # A place waits for the end of its window, or for a random time of at most one window.
        wait = np.arange(len(places)) * window // len(places)
        times = places // window if plan.stream[1] == "disjoint" else places + wait
        # numpy sorts integers of at most 16 bits by radix, which is faster.
        times = times.astype(np.min_scalar_type(times.max(initial=0)))
        return part[places[np.argsort(times, kind="stable")]]


def check_window(window: int, samples: int) -> None:
    """Raise UserError if the window of a stream has more samples than the smallest part of a worker."""
    if window > samples:
        raise UserError(
            f"data.stream.window: {window} samples are more than the {samples} samples of a worker; use a smaller window"
        )


@dataclass(frozen=True)
class SamplingPlan:
    """Creates the sampler of each process that computes gradients."""

    parts: Sequence[Indices]  # training samples of each worker, or of all workers that share one order
    workers: int
    batch_size: int
    seed: int
    steps_per_epoch: int | None = None  # number of steps of each worker; None uses every sample once
    # True if the batches of an epoch form one sequence and each batch goes to the first idle worker
    dynamic: bool = False
    processes: int = 1  # number of processes of a worker, which divide the worker's samples evenly
    # size and mode (`disjoint`, `sliding`) of a window that moves along each part once an epoch
    stream: tuple[int, str] | None = None
    # the last epoch and its order, if the workers share one: simulated ranks also share the plan
    orders: dict[int, Indices] = field(default_factory=dict, compare=False)

    def sampler(self, worker: int) -> EpochSampler:
        """Return the sampler of a worker."""
        if self.dynamic:
            # `steps_per_epoch` counts the steps of one worker, but the sequence serves all of them.
            steps = self.steps_per_epoch and self.steps_per_epoch * self.workers
            return SharedOrderSampler(replace(self, workers=1, steps_per_epoch=steps, processes=1), 0)
        return (PartitionedSampler if len(self.parts) > 1 or self.stream else SharedOrderSampler)(
            self, worker
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
