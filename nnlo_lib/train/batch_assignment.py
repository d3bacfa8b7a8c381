"""Which worker takes which batch of an epoch."""

from collections.abc import Iterator
from typing import Protocol

from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.data.loading.loader import Batch, BatchLoader


class BatchSource(Protocol):
    """How a worker comes to its batches; `index` counts what of an epoch is done."""

    def batches(self, epoch: int, index: int) -> Iterator[Batch]:
        """Yield this worker's batches of an epoch."""

    def start_at(self, index: int) -> None:
        """Get ready to go on at `index`; all ranks call it."""

    def stop_early(self) -> bool:
        """End the batches early; say whether the next one, made already, may be dropped."""

    def synced_index(self, index: int) -> int:
        """Return what of the epoch is done; all ranks call it after a pause."""


class StaticBatches:
    """Each worker takes the batches that were planned for it: `index` counts its steps."""

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
    """Whoever has time takes the epoch's next batch: `index` counts those of all workers together."""

    def __init__(self, loader: BatchLoader, comm: Communicator) -> None:
        self._loader, self._comm = loader, comm

    def batches(self, epoch: int, index: int) -> Iterator[Batch]:
        while not self._is_stopping and (ticket := self._comm.next_index()) < self._loader.steps_per_epoch:
            yield self._loader.batch(epoch, ticket)

    def start_at(self, index: int) -> None:
        self._is_stopping = False
        self._comm.reset_counter(index)

    def stop_early(self) -> bool:
        self._is_stopping = True
        return False  # nobody else will take it

    def synced_index(self, index: int) -> int:
        asked = self._comm.next_index() if self._comm.rank == 0 else 0
        return min(int(self._comm.gather(asked)[0]), self._loader.steps_per_epoch)
