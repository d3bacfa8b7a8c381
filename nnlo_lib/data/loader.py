"""Mini-batches in an order that anyone can compute again from (seed, epoch)."""

from collections.abc import Iterator
from dataclasses import dataclass

from nnlo_lib.data.order import Purpose, shuffled
from nnlo_lib.data.readers import Features, Labels
from nnlo_lib.data.split import Indices, Split
from nnlo_lib.errors import UserError


@dataclass(frozen=True)
class Batch:
    """What one worker learns from in step `index` of an epoch.

    `features` (count, *shape) uint8, `labels` (count,), `ids` (count,) the samples' places in the split;
    `global_count` counts the samples of all workers in this step.
    """

    index: int
    features: Features
    labels: Labels
    ids: Indices
    count: int
    global_count: int


class Loader:
    """Walk over `indices` of a split with `workers` workers, of which this is number `worker`.

    An epoch is one order of `indices`, a pure function of (seed, epoch), cut into global batches of
    batch_size * workers samples; each worker takes a contiguous share. The last global batch is kept however
    small and shared evenly: a worker may get no sample, but never no Batch, so that all stay in step.
    Raises UserError if there are fewer samples than workers.
    """

    def __init__(
        self,
        split: Split,
        indices: Indices,
        batch_size: int,
        workers: int,
        worker: int,
        seed: int,
        shuffle: bool = True,
    ) -> None:
        if not 0 <= worker < workers or batch_size < 1:
            raise ValueError(f"worker {worker} of {workers} with batches of {batch_size}")
        if len(indices) < workers:
            raise UserError(
                f"{workers} ranks asked on a {len(indices)}-sample set; each needs at least one sample: "
                f"lower parallel.ranks, or use more samples (data.dataset, data.validation)"
            )
        self._split, self._indices, self._seed, self._shuffle = split, indices, seed, shuffle
        self._workers, self._worker = workers, worker
        self._global_batch = batch_size * workers

    @property
    def samples(self) -> int:
        """Samples of an epoch, all workers together."""
        return len(self._indices)

    @property
    def steps_per_epoch(self) -> int:
        """Global batches of an epoch, the last partial one included."""
        return -(-self.samples // self._global_batch)

    def order(self, epoch: int) -> Indices:
        """Return the order of all workers' samples in an epoch; it depends on (seed, epoch) alone."""
        return shuffled(self._indices, self._seed, Purpose.EPOCH, epoch) if self._shuffle else self._indices

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """Yield this worker's batches of an epoch from step `start` on."""
        order = self.order(epoch)
        for step in range(start, self.steps_per_epoch):
            together = order[step * self._global_batch : (step + 1) * self._global_batch]
            ids = self._share(together)
            features, labels = self._split.take(ids)
            yield Batch(step, features, labels, ids, len(ids), len(together))

    def _share(self, together: Indices) -> Indices:
        """Take this worker's part of a global batch; the first workers get one more if it does not divide."""
        share, more = divmod(len(together), self._workers)
        begin = self._worker * share + min(self._worker, more)
        return together[begin : begin + share + (self._worker < more)]
