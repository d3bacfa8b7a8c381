"""Checkpoints: a folder each, one file per rank, a manifest with checksums, visible only when whole.

state/checkpoints/00000042/rank-0.safetensors   tensors; their header's metadata holds the rank's progress
                           rank-1.safetensors
                           manifest.json        version, key of the run, step, ranks, sha256 of each file
"""

import shutil
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Event

from nnlo_lib.checkpoint import part as parts
from nnlo_lib.checkpoint.background import Background, told
from nnlo_lib.checkpoint.manifest import Manifest
from nnlo_lib.checkpoint.part import Part, Receipt
from nnlo_lib.checkpoint.publisher import (
    Publisher,
    folder_name,
    lease_of,
    next_number,
    numbers,
    unfinished_name,
)
from nnlo_lib.checkpoint.snapshot import Snapshot
from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.config import Checkpoint
from nnlo_lib.failpoints import failpoint
from nnlo_lib.state.journal import Journal


@dataclass(frozen=True)
class Moment:
    """Where in a run a checkpoint is: epochs done, steps of all epochs, and what was measured if an epoch ends."""

    epoch: int
    step: int
    metrics: dict[str, float]


@dataclass(frozen=True)
class Saved:
    """A whole checkpoint, written by so many ranks, after so many steps of the run."""

    folder: Path
    ranks: int
    step: int

    def part(self, rank: int) -> Part:
        """Read what a rank goes on from."""
        return parts.read(self.folder, rank)


class Checkpoints:
    """The checkpoints of one training; all its ranks call together.

    key: what a checkpoint must have been written by to be continued (a hash of the run). code: the nnlo that writes.
    patience: seconds to wait for what other ranks write. took: seconds from the last save until it was on disk, on
    rank 0.
    """

    def __init__(
        self,
        folder: Path,
        key: str,
        code: str,
        wish: Checkpoint,
        comm: Communicator,
        journal: Journal,
        patience: float,
    ) -> None:
        self.folder, self._comm, self._journal = folder, comm, journal
        self._key, self._code = key, code
        self._publisher = Publisher(folder, wish, comm.size, patience, lease_of(folder))
        self._snapshot = Snapshot()
        self._own: Background | None = None
        self._all: Background | None = None
        self._given_up = Event()
        self.took = 0.0

    def save(self, part: Part, moment: Moment, trouble: str = "") -> None:
        """Copy this rank's state and write it while the training goes on; not if any rank is in `trouble`."""
        self.settle()
        started = time.monotonic()
        number = next_number(self.folder) if self._comm.rank == 0 else 0
        said = self._comm.gather([number, trouble])
        if found := _first(each[1] for each in said):
            self._warn(moment, found)
            return
        failpoint("checkpoint.begin")
        number = said[0][0]
        copy = Part(self._snapshot.take(part.tensors), part.progress)
        self._own = Background(lambda: self._write(number, copy))
        if self._comm.rank == 0:
            seconds = time.monotonic() - started
            manifest = Manifest(
                self._key, self._code, self._comm.size, moment.epoch, moment.step, moment.metrics, seconds
            )
            self._all = Background(lambda: self._publish(number, manifest, moment, started))

    def give_up(self) -> None:
        """Leave the checkpoint under way, if there is one, as other ranks have failed; return when nothing writes."""
        self._given_up.set()
        for writer in filter(None, (self._own, self._all)):
            writer.join()

    def settle(self) -> bool:
        """Wait for the checkpoint under way, if there is one; say, on all ranks, whether it is on disk and whole."""
        if self._own is None:
            return True
        trouble = _first(self._comm.gather(self._own.outcome()))
        self._own = None
        if self._all is not None:
            if trouble:
                self._given_up.set()
            trouble, self._all = self._all.outcome(), None
            self._given_up.clear()
        return not self._comm.gather(trouble)[0]

    def _write(self, number: int, part: Part) -> None:
        unfinished = self.folder / unfinished_name(number)
        unfinished.mkdir(exist_ok=True)
        try:
            receipt = parts.write(unfinished, self._comm.rank, part)
            failpoint("checkpoint.written")
        except Exception as error:
            parts.leave_receipt(unfinished, self._comm.rank, Receipt(error=told(error)))
            raise
        parts.leave_receipt(unfinished, self._comm.rank, receipt)

    def _publish(self, number: int, manifest: Manifest, moment: Moment, started: float) -> None:
        try:
            self._publisher.publish(number, manifest, self._given_up)
        except Exception as error:
            self._warn(moment, told(error))
            raise
        self.took = time.monotonic() - started

    def _warn(self, moment: Moment, trouble: str) -> None:
        left = numbers(self.folder)
        last = f"the last good one is {folder_name(left[-1])}" if left else "there is none before it"
        self._journal.write(
            f"warning: the checkpoint at step {moment.step} could not be written: {trouble}; "
            f"training goes on, {last} in {self.folder}"
        )

    def load(self, epochs: int) -> Saved | None:
        """Find the newest whole checkpoint of a training of so many epochs.

        Raises UserError, on rank 0, if another version of nnlo wrote it.
        """
        if self._comm.rank == 0:
            self._tidy()
        for number in reversed(self._comm.gather(numbers(self.folder))[0]):
            folder = self.folder / folder_name(number)
            manifest, fault = self._comm.gather(
                self._manifest(folder, epochs) if self._comm.rank == 0 else None
            )[0]
            fault = fault or self._damage(folder, Manifest(**manifest))
            if not fault:
                return Saved(folder, manifest["ranks"], manifest["step"])
            self._skip(folder, fault)
        return None

    def _tidy(self) -> None:
        """Clear away what a crash left unfinished."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for unfinished in self.folder.glob("unfinished-*"):
            shutil.rmtree(unfinished)

    def _manifest(self, folder: Path, epochs: int) -> tuple[dict[str, object] | None, str]:
        try:
            manifest = Manifest.read(folder)
        except (OSError, ValueError) as error:
            return None, f"damaged: {type(error).__name__}: {error}"
        fault = "" if manifest.key == self._key else "the experiment changed since it was written"
        return asdict(manifest), fault or _excess(manifest, epochs)

    def _damage(self, folder: Path, manifest: Manifest) -> str:
        """Return which file is damaged, empty if none is; each rank looks at some."""
        mine = range(self._comm.rank, manifest.ranks, self._comm.size)
        damaged = [parts.file_of(rank) for rank in mine if not parts.is_whole(folder, rank, manifest.sha256)]
        found = _first(name for names in self._comm.gather(damaged) for name in names)
        return f"damaged: {found}" if found else ""

    def _skip(self, folder: Path, fault: str) -> None:
        """Warn; a damaged checkpoint gives up its name, lest it count as one of those to keep."""
        if self._comm.rank == 0 and fault.startswith("damaged"):
            shutil.rmtree(folder.with_name(f"damaged-{folder.name}"), ignore_errors=True)
            folder.rename(folder.with_name(f"damaged-{folder.name}"))
        self._journal.write(f"warning: the checkpoint {folder} is skipped: {fault}")


def _first(texts: Iterable[str]) -> str:
    return next(filter(None, texts), "")


def _excess(manifest: Manifest, epochs: int) -> str:
    """Return why a checkpoint is beyond the end of a training; empty if it is not."""
    beyond = manifest.epoch > epochs or (manifest.epoch == epochs and not manifest.metrics)
    return f"it is beyond epoch {epochs}, with which the training now ends" if beyond else ""
