"""Which worker takes which batch of an epoch."""

from collections.abc import Iterator
from typing import Protocol

from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.data.loader import Batch, Loader


class Dealing(Protocol):
    """How a worker comes to its batches; `index` counts what of an epoch is done."""

    def batches(self, epoch: int, index: int) -> Iterator[Batch]:
        """Yield this worker's batches of an epoch."""

    def begin(self, index: int) -> None:
        """Get ready to go on at `index`; all ranks call it."""

    def leave(self) -> bool:
        """End the batches early; say whether the next one, made already, may be dropped."""

    def done(self, index: int) -> int:
        """Return what of the epoch is done; all ranks call it after a pause."""


class Planned:
    """Each worker takes the batches that were planned for it: `index` counts its steps."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def batches(self, epoch: int, index: int) -> Iterator[Batch]:
        return self._loader.epoch(epoch, index)

    def begin(self, index: int) -> None:
        pass

    def leave(self) -> bool:
        return True

    def done(self, index: int) -> int:
        return index


class AsTheyCome:
    """Whoever has time takes the epoch's next batch: `index` counts those of all workers together."""

    def __init__(self, loader: Loader, comm: Communicator) -> None:
        self._loader, self._comm = loader, comm

    def batches(self, epoch: int, index: int) -> Iterator[Batch]:
        while not self._leaving and (ticket := self._comm.ticket()) < self._loader.steps_per_epoch:
            yield self._loader.batch(epoch, ticket)

    def begin(self, index: int) -> None:
        self._leaving = False
        self._comm.deal(index)

    def leave(self) -> bool:
        self._leaving = True
        return False  # nobody else will take it

    def done(self, index: int) -> int:
        asked = self._comm.ticket() if self._comm.rank == 0 else 0
        return min(int(self._comm.gather(asked)[0]), self._loader.steps_per_epoch)
