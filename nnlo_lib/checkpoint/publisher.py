"""Rank 0's part in a checkpoint: wait for all ranks' files, write the manifest, give the folder its name."""

import os
import shutil
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from nnlo_lib.checkpoint.manifest import Manifest
from nnlo_lib.checkpoint.part import Receipt, drop_receipts, file_of, find_receipt
from nnlo_lib.checkpoint.retention import kept
from nnlo_lib.config import Checkpoint
from nnlo_lib.errors import UserError
from nnlo_lib.failpoints import failpoint
from nnlo_lib.state.lease import NAME as LEASE

GLANCE = 0.02  # seconds between two looks for receipts


@dataclass(frozen=True)
class Publisher:
    """Makes parts into a checkpoint. patience: seconds to wait for a rank's part; lease: what makes the run ours."""

    folder: Path
    wish: Checkpoint
    ranks: int
    patience: float
    lease: bytes

    def publish(self, number: int, manifest: Manifest, given_up: Event) -> None:
        """Publish a checkpoint when its parts are there, and remove what is not to be kept.

        Raises OSError if a rank could not write its part, none came in time, or `given_up` is set.
        """
        unfinished = self.folder / unfinished_name(number)
        try:
            receipts = {file_of(rank): self._await(unfinished, rank, given_up) for rank in range(self.ranks)}
            self._name(unfinished, number, manifest.having(receipts))
        except Exception:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
        failpoint("checkpoint.published")
        self._retire()

    def _await(self, unfinished: Path, rank: int, given_up: Event) -> Receipt:
        end = time.monotonic() + self.patience
        over = False
        while (receipt := find_receipt(unfinished, rank)) is None:
            if over:
                raise OSError(f"nothing came from rank {rank}")
            over = given_up.wait(GLANCE) or time.monotonic() > end
        if receipt.error:
            raise OSError(f"rank {rank}: {receipt.error}")
        return receipt

    def _name(self, unfinished: Path, number: int, manifest: Manifest) -> None:
        failpoint("checkpoint.complete")
        manifest.write(unfinished)
        drop_receipts(unfinished)
        sync(unfinished)
        failpoint("checkpoint.unnamed")
        if lease_of(self.folder) != self.lease:
            raise OSError("another nnlo has taken this run over")
        unfinished.rename(self.folder / folder_name(number))
        sync(self.folder)

    def _retire(self) -> None:
        found = {}
        for number in numbers(self.folder):
            with suppress(OSError, ValueError, UserError):
                found[number] = Manifest.read(self.folder / folder_name(number))
        for number in found.keys() - kept(self.wish, found):
            remove(self.folder, number)


def lease_of(folder: Path) -> bytes:
    """Return what says whose run the checkpoints in `folder` belong to; nothing where no launcher minds it."""
    try:
        return (folder.parent / LEASE).read_bytes()
    except FileNotFoundError:
        return b""


def numbers(folder: Path) -> list[int]:
    """Return the numbers of the checkpoints in `folder`, whole as far as their names say, oldest first."""
    return sorted(int(path.name) for path in folder.glob("[0-9]" * 8))


def next_number(folder: Path) -> int:
    """Return a number that no checkpoint of `folder` has, nor what is left of one."""
    return max((int(path.name[-8:]) for path in folder.glob("*" + "[0-9]" * 8)), default=0) + 1


def folder_name(number: int) -> str:
    """Return the name of a whole checkpoint."""
    return f"{number:08d}"


def unfinished_name(number: int) -> str:
    """Return the name of a checkpoint that is being written or removed."""
    return f"unfinished-{number:08d}"


def remove(folder: Path, number: int) -> None:
    """Remove a checkpoint; what a crash leaves of it has no checkpoint's name."""
    unfinished = folder / unfinished_name(number)
    with suppress(OSError):
        (folder / folder_name(number)).rename(unfinished)
    shutil.rmtree(unfinished, ignore_errors=True)


def sync(folder: Path) -> None:
    """Make renames in `folder` survive a power failure."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
