"""Assignment of an epoch's batches to workers: planned in advance or on demand."""

from collections.abc import Iterator
from typing import Protocol

from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.data.loading.loader import Batch, BatchLoader


class BatchSource(Protocol):
    """Source of a worker's batches. `index` is the progress in an epoch; each class defines its unit."""

    def batches(self, epoch: int, index: int) -> Iterator[Batch]:
        """Yield this worker's batches of an epoch."""

    def start_at(self, index: int) -> None:
        """Prepare to continue the epoch at `index`; all ranks call it."""

    def stop_early(self) -> bool:
        """Stop yielding batches; return True if the next batch, already loaded, may be discarded."""

    def synced_index(self, index: int) -> int:
        """Return the progress within the epoch; all ranks call it after a pause."""


class StaticBatches:
    """Gives each worker the batches that the sampler planned for it; `index` counts this worker's steps."""

    def __init__(self, loader: BatchLoader) -> None:
        self._loader = loader

    def batches(self, epoch: int, index: int) -> Iterator[Batch]:
        return self._loader.epoch(epoch, index)

    def start_at(self, index: int) -> None:
        pass

    def stop_early(self) -> bool:
        return True

    def synced_index(self, index: int) -> int:
        return index


class DynamicBatches:
    """Gives the epoch's next batch to the first idle worker; `index` counts the batches of all workers."""

    def __init__(self, loader: BatchLoader, comm: Communicator) -> None:
        self._loader, self._comm = loader, comm

    def batches(self, epoch: int, index: int) -> Iterator[Batch]:
        # The flag comes before the ticket: a batch that is drawn and not used would be missing in the epoch.
        while not self._is_stopping and (ticket := self._comm.next_index()) < self._loader.steps_per_epoch:
            yield self._loader.batch(epoch, ticket)

    def start_at(self, index: int) -> None:
        self._is_stopping = False
        self._comm.reset_counter(index)

    def stop_early(self) -> bool:
        self._is_stopping = True
        return False  # The shared counter has passed this batch: no other worker would train on it.

    def synced_index(self, index: int) -> int:
        # Idle workers draw tickets beyond the end of the epoch. The ticket that is drawn here is not lost:
        # `start_at` resets the counter.
        next_index = self._comm.next_index() if self._comm.rank == 0 else 0
        return min(int(self._comm.gather(next_index)[0]), self._loader.steps_per_epoch)
