"""Due times of checkpoints, and rank 0's part in one: wait for all receipts, write the manifest, rename the folder."""

import shutil
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from nnlo_lib.checkpoint.checkpoint_manifest import (
    CheckpointManifest,
    checkpoint_folder_name,
    checkpoint_numbers,
    remove_checkpoint,
    unfinished_folder_name,
)
from nnlo_lib.checkpoint.rank_file import (
    TABLES_FILE,
    SavedTables,
    WriteReceipt,
    rank_file_name,
    read_receipt,
    remove_receipts,
    write_tables,
)
from nnlo_lib.config.checkpoint import CheckpointConfig
from nnlo_lib.config.paths import StatePaths
from nnlo_lib.core.atomic_file import fsync_folder
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.failpoints import failpoint

RECEIPT_POLL_INTERVAL_S = 0.02


class SaveInterval:
    """Counts seconds, steps or epochs since the last checkpoint.

    Args:
        watches: True if seconds count within an epoch; otherwise they count only at the end of an epoch, where
            saving cannot change the result of the training.
        within: False if steps count only at the end of an epoch, too.
    """

    def __init__(self, config: CheckpointConfig, watches: bool, within: bool = True) -> None:
        self._config, self._watches, self._within = config, watches, within
        self.mark_saved(0, 0)

    def mark_saved(self, step: int, epoch: int) -> None:
        """Restart the count at this step and epoch."""
        self._time, self._step, self._epoch = time.monotonic(), step, epoch

    def is_due(self, step: int) -> bool:
        """Return True if a checkpoint is due within an epoch."""
        if self._config.steps is not None:
            return self._within and self._has_stepped(step)
        return self._watches and self._is_overdue

    def is_due_after_epoch(self, epoch: int, step: int = 0) -> bool:
        """Return True if a checkpoint is due when `epoch` epochs have just ended, after `step` steps."""
        epochs = self._config.epochs
        due = epochs is not None and epoch - self._epoch >= epochs
        return self._is_overdue or self._has_stepped(step) or due

    def _has_stepped(self, step: int) -> bool:
        return self._config.steps is not None and step - self._step >= self._config.steps

    @property
    def _is_overdue(self) -> bool:
        return self._config.seconds is not None and time.monotonic() - self._time >= self._config.seconds


class CommonTensorError(OSError):
    """A tensor that all ranks should have has other bits on one of them."""


@dataclass(frozen=True)
class Committer:
    """Turns the rank files into a checkpoint."""

    folder: Path
    config: CheckpointConfig
    ranks: int
    receipt_timeout_s: float
    lease: bytes  # content of the run's lease file; if it changes, another launcher owns the run

    def commit(self, number: int, manifest: CheckpointManifest, tables: SavedTables, given_up: Event) -> None:
        """Publish a checkpoint when all rank files are complete, and remove expired checkpoints.

        The manifest is without the checksums of the files, which the receipts contain. `given_up` is set if a receipt that is
        still missing will not arrive.

        Raises OSError if a rank could not write its file, a receipt does not arrive in time, `given_up` is set, a common
        tensor differs (CommonTensorError), or another launcher has taken the lease.
        """
        unfinished = self.folder / unfinished_folder_name(number)
        try:
            receipts = {
                rank_file_name(rank): self._wait_for_receipt(unfinished, rank, given_up)
                for rank in range(self.ranks)
            }
            for rank in range(self.ranks):
                for name, crc in receipts[rank_file_name(rank)].common.items():
                    if crc != receipts[rank_file_name(0)].common[name]:
                        raise CommonTensorError(
                            f"{name} has other bits on rank {rank} than on rank 0, as can happen if their processors differ"
                        )
            receipts[TABLES_FILE] = write_tables(unfinished, tables)
            self._write_manifest_and_rename(unfinished, number, manifest.with_files(receipts))
        except Exception:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
        failpoint("checkpoint.published")
        found = {}
        for each in checkpoint_numbers(self.folder):
            # Checkpoints that are damaged or have another format do not count and are never removed.
            with suppress(OSError, ValueError, UserError):
                found[each] = CheckpointManifest.read(self.folder / checkpoint_folder_name(each))
        for expired in found.keys() - checkpoints_to_keep(self.config, found):
            remove_checkpoint(self.folder, expired)

    def _wait_for_receipt(self, unfinished: Path, rank: int, given_up: Event) -> WriteReceipt:
        end = time.monotonic() + self.receipt_timeout_s
        over = False
        while (receipt := read_receipt(unfinished, rank)) is None:
            if over:
                raise OSError(f"rank {rank} did not finish writing its file {rank_file_name(rank)}")
            # The loop reads the receipt once more after the end of the wait: it may have arrived since the
            # previous read.
            over = given_up.wait(RECEIPT_POLL_INTERVAL_S) or time.monotonic() > end
        if receipt.error:
            raise OSError(f"rank {rank}: {receipt.error}")
        return receipt

    def _write_manifest_and_rename(self, unfinished: Path, number: int, manifest: CheckpointManifest) -> None:
        failpoint("checkpoint.complete")
        # The order is a contract: a power failure at any point leaves either a folder named `unfinished-*`
        # or a checkpoint of which every file is on disk.
        manifest.write(unfinished)
        remove_receipts(unfinished)
        fsync_folder(unfinished)
        failpoint("checkpoint.unnamed")
        # A launcher that lost its lease may still have live ranks; their checkpoint must not become the
        # newest one of the new owner's run. The check is late to keep the window before the rename short.
        if read_lease(self.folder) != self.lease:
            raise OSError("another nnlo process has taken over the lease of this run")
        unfinished.rename(self.folder / checkpoint_folder_name(number))
        fsync_folder(self.folder)


def read_lease(folder: Path) -> bytes:
    """Return the content of the lease file of the run with these checkpoints; empty without a launcher."""
    try:
        return StatePaths(folder.parent).lease.read_bytes()
    except FileNotFoundError:
        return b""


def checkpoints_to_keep(config: CheckpointConfig, checkpoints: dict[int, CheckpointManifest]) -> set[int]:
    """Return the numbers of the checkpoints to keep.

    These are the newest `keep`, every `keep_every`-th, and the best of the checkpoints that end an epoch.
    """
    numbers = sorted(checkpoints)
    newest = set(numbers[-config.keep :])
    # A number belongs to a checkpoint for good, so that the choice does not depend on earlier removals.
    permanent = {number for number in numbers if config.keep_every and number % config.keep_every == 0}
    best, rule = set[int](), config.best_rule
    if rule:
        metrics = {number: manifest.metrics.get(rule.metric) for number, manifest in checkpoints.items()}
        values = {number: value for number, value in metrics.items() if value is not None}
        choose = max if rule.larger_is_better else min
        best = {choose(values, key=values.__getitem__)} if values else best
    return newest | permanent | best
