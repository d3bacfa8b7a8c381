"""Checkpoints of a training: saved in the background, loaded if complete and undamaged.

A checkpoint is a folder with a file per rank and a manifest, and is visible only when complete:

state/checkpoints/00000042/rank-0.safetensors   tensors; their header's metadata holds the rank's progress
                           rank-1.safetensors   without tensors that have the same bits on all ranks
                           tables.json          rows of the run's tables
                           manifest.json        version, key of the run, step, ranks, sha256 of each file
"""

import shutil
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Event, Thread

import torch
from torch import Tensor

from nnlo_lib.checkpoint import rank_file as parts
from nnlo_lib.checkpoint.checkpoint_manifest import (
    CheckpointManifest,
    checkpoint_folder_name,
    checkpoint_numbers,
    next_checkpoint_number,
    unfinished_folder_name,
)
from nnlo_lib.checkpoint.commit import Committer, CommonTensorError, read_lease
from nnlo_lib.checkpoint.rank_file import TABLES_FILE, RankState, SavedTables, WriteReceipt, read_tables
from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.config.checkpoint import CheckpointConfig
from nnlo_lib.core.atomic_file import create_folder
from nnlo_lib.core.errors import UserError
from nnlo_lib.core.failpoints import failpoint
from nnlo_lib.state.training_records import RunLog

MAX_SNAPSHOTS = 8  # copies of the states of simulated ranks that are written at the same time


@dataclass(frozen=True)
class CheckpointPosition:
    """Position of a checkpoint in a run."""

    epoch: int
    step: int
    metrics: dict[str, float]  # metrics of the last epoch if the checkpoint ends an epoch, else empty


@dataclass(frozen=True)
class SavedCheckpoint:
    """A complete checkpoint, with the number of ranks that wrote it, and the complete epochs and steps before it."""

    folder: Path
    ranks: int
    epoch: int
    step: int

    def read_rank_state(self, rank: int) -> RankState:
        """Return the state from which a rank resumes."""
        return parts.read_rank_file(self.folder, rank)

    def read_tables(self) -> SavedTables:
        """Return the rows of the run's tables."""
        return read_tables(self.folder)


class Checkpointer:
    """The checkpoints of one training; all ranks of the training make the same calls.

    Args:
        key: fingerprint of the run; only checkpoints with this key are resumed from.
        patience: seconds to wait for the files of other ranks.

    Attributes:
        last_save_seconds: duration of the last save until it was on disk, on rank 0.
    """

    def __init__(
        self,
        folder: Path,
        key: str,
        code: str,
        config: CheckpointConfig,
        comm: Communicator,
        journal: RunLog,
        patience: float,
    ) -> None:
        self.folder, self._comm, self._journal = folder, comm, journal
        self._key, self._code = key, code
        self._publisher = Committer(folder, config, comm.size, patience, read_lease(folder))
        # Simulated ranks take turns, so that a process of 1,000 ranks neither copies all states nor starts 1,000 threads.
        self._snapshot = comm.shared(f"snapshot {comm.rank % MAX_SNAPSHOTS}", HostSnapshot)
        self._rank_writer: BackgroundTask | None = None
        self._commit_task: BackgroundTask | None = None
        self._abort_event = Event()
        self._leaves_out = True
        self.last_save_seconds = 0.0

    def save(self, part: RankState, moment: CheckpointPosition, tables: SavedTables, error: str = "") -> None:
        """Copy this rank's state and write it while the training continues.

        If any rank has an error, log a warning instead and write nothing.

        Args:
            tables: rows of the run's tables on rank 0; the lists must not change.
            error: error of this rank that prevents a checkpoint, or an empty string.
        """
        # One checkpoint is in progress at a time, because the host copies are reused.
        self.wait_until_saved()
        started = time.monotonic()
        # Rank 0 chooses the number, because all ranks must write into the same folder.
        number = next_checkpoint_number(self.folder) if self._comm.rank == 0 else 0
        gathered = self._comm.gather([number, error])
        if found := _first(each[1] for each in gathered):
            self._warn(moment, found)
            return
        failpoint("checkpoint.begin")
        number = gathered[0][0]
        copy = RankState(
            self._snapshot.copy_to_host(part.tensors), part.progress, part.common if self._leaves_out else ()
        )
        self._rank_writer = self._snapshot.writer = BackgroundTask(lambda: self._write(number, copy))
        if self._comm.rank == 0:
            seconds = time.monotonic() - started
            manifest = CheckpointManifest(
                self._key, self._code, self._comm.size, moment.epoch, moment.step, moment.metrics, seconds
            )
            self._commit_task = BackgroundTask(
                lambda: self._publish(number, manifest, tables, moment, started)
            )

    def abort(self) -> None:
        """Abort the checkpoint in progress, if any, because other ranks failed; wait until writing ends."""
        self._abort_event.set()
        for writer in filter(None, (self._rank_writer, self._commit_task)):
            writer.join()

    def wait_until_saved(self) -> bool:
        """Wait for the checkpoint in progress, if any.

        Return, on all ranks, True if it is on disk and complete, or if there was no checkpoint in progress.
        """
        if self._rank_writer is None:
            return True
        error, differs = _first(self._comm.gather(self._rank_writer.wait_for_error())), False
        self._rank_writer = None
        if self._commit_task is not None:
            if error:
                # Every rank writer has ended: a receipt that is still missing (for example on a full disk)
                # will not arrive.
                self._abort_event.set()
            error = self._commit_task.wait_for_error()
            differs = isinstance(self._commit_task.exception, CommonTensorError)
            self._commit_task = None
            self._abort_event.clear()
            if error:
                # A rank that was late has created the folder again after rank 0 had given up and removed it.
                for unfinished in self.folder.glob("unfinished-*"):
                    shutil.rmtree(unfinished, ignore_errors=True)
        # Only rank 0, which publishes, knows whether the checkpoint is complete.
        error, differs = self._comm.gather([error, differs])[0]
        # If a tensor was not common, each rank writes all of its tensors from now on.
        self._leaves_out = self._leaves_out and not differs
        return not error

    def _write(self, number: int, part: RankState) -> None:
        unfinished = self.folder / unfinished_folder_name(number)
        # All ranks write into this folder, and any of them may be the first.
        unfinished.mkdir(exist_ok=True)
        try:
            receipt = parts.write_rank_file(unfinished, self._comm.rank, part)
            failpoint("checkpoint.written")
        except Exception as error:
            # The receipt spares rank 0 the wait until the timeout.
            parts.write_receipt(unfinished, self._comm.rank, WriteReceipt(error=error_text(error)))
            raise
        parts.write_receipt(unfinished, self._comm.rank, receipt)

    def _publish(
        self, number: int, manifest: CheckpointManifest, tables: SavedTables, moment: CheckpointPosition,
        started: float,
    ) -> None:  # fmt: skip
        try:
            self._publisher.commit(number, manifest, tables, self._abort_event)
        except Exception as error:
            self._warn(moment, error_text(error))
            raise
        self.last_save_seconds = time.monotonic() - started

    def _warn(self, moment: CheckpointPosition, error: str) -> None:
        left = [checkpoint_folder_name(number) for number in checkpoint_numbers(self.folder)]
        last = f"the last good checkpoint is {left[-1]}" if left else "no earlier checkpoint exists"
        self._journal.write(
            f"warning: the checkpoint at step {moment.step} could not be written: {error}; "
            f"the training continues; {last} in {self.folder}"
        )

    def load(self, epochs: int, start: Path | None = None) -> SavedCheckpoint | None:
        """Return the newest usable checkpoint for a training of `epochs` epochs; warn of each skipped checkpoint.

        If all are unusable, return the checkpoint `start` of another training, or None without it. Raises UserError if
        `start` is unusable and, on rank 0, if a checkpoint has another format.
        """
        if self._comm.rank == 0:
            create_folder(self.folder)
            # A crash leaves unfinished checkpoints behind.
            for unfinished in self.folder.glob("unfinished-*"):
                shutil.rmtree(unfinished)
        # All ranks use the list of rank 0, because the calls in the loop are collective.
        numbers = reversed(self._comm.gather(checkpoint_numbers(self.folder))[0])
        own = [self.folder / checkpoint_folder_name(number) for number in numbers]
        for folder in (*own, start) if start else own:
            found = self._manifest(folder, epochs) if self._comm.rank == 0 else None
            manifest, fault = self._comm.gather(found)[0]
            # Checksums last: they require reading every rank file.
            fault = fault or self._damage(folder, CheckpointManifest(**manifest))
            if not fault:
                return SavedCheckpoint(folder, manifest["ranks"], manifest["epoch"], manifest["step"])
            if folder == start:
                raise UserError(
                    f"{start}: this training cannot start from the checkpoint: {fault}; restore it"
                )
            self._skip(folder, fault)
        return None

    def _manifest(self, folder: Path, epochs: int) -> tuple[dict[str, object] | None, str]:
        try:
            manifest = CheckpointManifest.read(folder)
        except (OSError, ValueError) as error:
            return None, f"damaged: {type(error).__name__}: {error}"
        is_other = folder.parent == self.folder and manifest.key != self._key
        fault = "the experiment changed since it was written" if is_other else ""
        if not fault and manifest.is_beyond(epochs):
            fault = f"it is beyond epoch {epochs}, the last epoch of this training"
        return asdict(manifest), fault

    def _damage(self, folder: Path, manifest: CheckpointManifest) -> str:
        """Return the name of a damaged file, or an empty string; each rank checks some of the files."""
        mine = [
            parts.rank_file_name(rank) for rank in range(self._comm.rank, manifest.ranks, self._comm.size)
        ]
        if self._comm.rank == 0 and TABLES_FILE in manifest.sha256:
            mine.append(TABLES_FILE)
        damaged = [name for name in mine if not parts.is_intact(folder / name, manifest.sha256.get(name))]
        found = _first(name for names in self._comm.gather(damaged) for name in names)
        return f"damaged: {found}" if found else ""

    def _skip(self, folder: Path, fault: str) -> None:
        """Warn; rename a damaged checkpoint, so that it does not count as one of the checkpoints to keep."""
        if self._comm.rank == 0 and fault.startswith("damaged"):
            # A leftover of the same name would prevent the rename.
            shutil.rmtree(folder.with_name(f"damaged-{folder.name}"), ignore_errors=True)
            folder.rename(folder.with_name(f"damaged-{folder.name}"))
        self._journal.warn(f"the checkpoint {folder} is skipped: {fault}")


def _first(texts: Iterable[str]) -> str:
    return next(filter(None, texts), "")


def error_text(error: Exception) -> str:
    """Return the error's message, with the type of the error unless it is an OSError."""
    return str(error) if isinstance(error, OSError) else f"{type(error).__name__}: {error}"


class BackgroundTask(Thread):
    """Run `work` in a thread that does not keep the process alive."""

    def __init__(self, work: Callable[[], None]) -> None:
        super().__init__(daemon=True)
        self._work = work
        self.exception: Exception | None = None
        self.start()

    def run(self) -> None:
        """Run `work`; record its exception, so that the training continues."""
        try:
            self._work()
        except Exception as error:
            self.exception = error

    def wait_for_error(self) -> str:
        """Wait for the end; return the error message, or an empty string after success."""
        self.join()
        return error_text(self.exception) if self.exception else ""


class HostSnapshot:
    """Host memory that is reused by later checkpoints: the first touch of memory costs more than the copy."""

    def __init__(self) -> None:
        self._buffers: dict[str, Tensor] = {}
        self.writer: BackgroundTask | None = None  # reads the last copies

    def copy_to_host(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Wait for `writer`; return copies of `tensors` in host memory, valid until the next call."""
        if self.writer:
            self.writer.join()
        former, self._buffers = self._buffers, {}
        for name, tensor in tensors.items():
            buffer = former.get(name)
            # Shapes may change from one checkpoint to the next, for example of histograms.
            if buffer is None or (buffer.shape, buffer.dtype) != (tensor.shape, tensor.dtype):
                buffer = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)
            self._buffers[name] = buffer.copy_(tensor, non_blocking=True)
        if any(tensor.is_cuda for tensor in tensors.values()):
            # Copies from a GPU to pinned memory are asynchronous; they must end before the training changes
            # the tensors.
            torch.cuda.synchronize()
        return self._buffers
