"""Records that a training writes to `state/` as it proceeds: tables, log, sample ledger, step marker, and printed failures.

A rank prints its failure if it cannot write it, as on a full disk.
"""

import csv
import hashlib
import json
import logging
import os
import shutil
import struct
import sys
import weakref
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from nnlo_lib.config.paths import StatePaths
from nnlo_lib.core.atomic_file import atomic_write, load_json
from nnlo_lib.core.errors import RESUMABLE_REASONS, UserError
from nnlo_lib.core.file_access import cause_of
from nnlo_lib.core.logging_setup import (
    LogFileHandler,
    log_file_handlers,
    log_level,
    terminal_handler,
    write_stderr,
)
from nnlo_lib.core.process import wait_until_read
from nnlo_lib.data.readers.base import Array, Indices
from nnlo_lib.state.attempt_outcome import AttemptOutcome

TableRow = dict[str, Any]
FAILURE_PREFIX = "nnlo failure: "
READ_TIMEOUT_S = 5.0  # until a launcher has read the line of a failure
MAX_COUNT = 255  # uses of a sample; counts saturate at the largest uint8
MAX_EXAMPLES = 10  # samples that a row of the ledger lists
STEP_MARKER_FORMAT = struct.Struct("<qq")


class JsonlTable:
    """A table in memory that is also appended to a file.

    Rows that cannot be written (OSError) stay in memory and are written with the next flush that succeeds.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: list[TableRow] = []
        self._written = 0

    def restore(self, rows: list[TableRow]) -> int:
        """Replace all rows, in the file too, by those of a checkpoint; return how many were missing in the file or differed."""
        # Rows after the checkpoint are discarded because the steps that wrote them are trained again.
        lines = [json.dumps(row) for row in rows]
        written = self.path.read_text(errors="replace").splitlines() if self.path.exists() else []
        unchanged = sum(map(str.__eq__, lines, written))
        self.rows, self._written = list(rows), len(rows)
        with atomic_write(self.path) as part:
            part.write_text("".join(f"{line}\n" for line in lines))
        return len(lines) - unchanged

    def append(self, row: TableRow) -> None:
        """Add a row, and try to write it to the file."""
        self.rows.append(row)
        with suppress(OSError):
            self.flush()

    def flush(self) -> None:
        """Write the rows that are not on disk yet, all or nothing. Raises OSError if writing fails."""
        text = "".join(f"{json.dumps(row)}\n" for row in self.rows[self._written :])
        with self.path.open("ab") as file:
            size = file.tell()
            try:
                file.write(text.encode())
                file.flush()
            except OSError:
                # A full disk may accept part of the text, which would corrupt the row that is written next.
                os.truncate(self.path, size)
                raise
        self._written = len(self.rows)

    def sync(self) -> None:
        """Write the table, and flush it to the disk. Raises UserError if the disk is full."""
        try:
            self.flush()
            with self.path.open("rb") as table:
                os.fsync(table.fileno())
        except OSError as error:
            raise UserError(f"cannot write {self.path}: {cause_of(error, self.path)}") from error

    def publish(self, path: Path) -> None:
        """Write the table, which must have at least one row, as CSV to `path`; missing values are empty."""
        with atomic_write(path) as part, part.open("w", newline="") as file:
            # A restart may add a column, for example with observe.loss_average.
            columns = dict.fromkeys(name for row in self.rows for name in row)
            writer = csv.DictWriter(file, list(columns))
            writer.writeheader()
            writer.writerows(self.rows)


def read_rows(path: Path) -> list[TableRow]:
    """Return the rows in the file of a table; none if there is no file. Raises ValueError if it is damaged."""
    return [load_json(line) for line in path.read_text().splitlines()] if path.exists() else []


class RunLog:
    """Log to stderr and, with time stamps, to state/log.txt; does nothing unless `enabled` (rank 0)."""

    def __init__(self, folder: Path, enabled: bool) -> None:
        self._path = StatePaths(folder).log
        self._logger = logging.Logger("nnlo_lib.run")  # not shared: simulated ranks share a process
        self._logger.disabled = not enabled
        if enabled:
            folder.mkdir(parents=True, exist_ok=True)
            # state/log.txt is the record of the run and has all messages, whatever the level of the terminal is.
            for handler in (terminal_handler(), *log_file_handlers()):
                handler.setLevel(log_level())
                self._logger.addHandler(handler)
            self._logger.addHandler(LogFileHandler(self._path))

    def write(self, text: str) -> None:
        """Write `text` to stderr and to the file; errors of the file are ignored."""
        self._logger.info(text)

    def warn(self, text: str) -> None:
        self._logger.warning(text)

    def publish(self, path: Path) -> None:
        """Copy the whole log to `path`."""
        with atomic_write(path) as part:
            # As bytes: after a power failure the log may contain zeros, and users' code may print any encoding.
            shutil.copyfile(self._path, part)


def log_error(folder: Path, outcome: AttemptOutcome) -> None:
    """Append the error of an ended attempt, and its details, to the log in `folder`; write errors are ignored."""
    if not outcome.error or not folder.exists():
        return
    level = logging.INFO if outcome.reason in RESUMABLE_REASONS else logging.ERROR
    details = "" if outcome.details.strip() in outcome.error else f"\n{outcome.details.strip()}"
    record = logging.LogRecord("nnlo_lib.run", level, "", 0, f"{outcome.error}{details}", None, None)
    LogFileHandler(StatePaths(folder).log).emit(record)


class SampleLedger:
    """Number of times that one rank used each sample in the current epoch.

    `counts` (samples,) uint8 is always the same array. It is saved in the rank's checkpoint, so that uses in
    steps that a restart loses are not counted.
    """

    def __init__(self, samples: int) -> None:
        self.counts = np.zeros(samples, np.uint8)

    def mark(self, ids: Indices) -> None:
        """Count one use of each of `ids`, which must be distinct."""
        # An overflow of uint8 to 0 would hide that a sample was used too often.
        self.counts[ids] += self.counts[ids] < MAX_COUNT

    def restore(self, *counts: Array) -> None:
        """Resume from the counts of this rank, or from the sum of counts of the ranks that it replaces."""
        # The sum of several ranks may exceed the range of uint8.
        self.counts[:] = np.minimum(np.sum(counts, axis=0, dtype=np.int64), MAX_COUNT)

    def clear(self) -> None:
        """Set all counts to zero at the start of an epoch."""
        self.counts[:] = 0


def epoch_row(epoch: int, counts: Array, expected: Array) -> dict[str, Any]:
    """Return the ledger row of an epoch (from 1): (samples,) counts by all ranks, and the (samples,) expected ones."""
    # Differences of unsigned counts would wrap around.
    difference = counts.astype(np.int64) - expected.astype(np.int64)
    return {
        "epoch": epoch,
        "samples": int(counts.sum(dtype=np.int64)),
        "missed": int(np.sum(difference < 0)),
        "repeated": int(np.sum(difference > 0)),
        "examples": np.flatnonzero(difference)[:MAX_EXAMPLES].tolist(),
        "sha256": counts_sha256(counts),
    }


def counts_sha256(counts: Array) -> str:
    """Return the SHA-256 of counts, independent of their integer type."""
    return hashlib.sha256(counts.astype("<u4").tobytes()).hexdigest()


class StepMarker:
    """First and last step of an attempt, in a file that its first worker overwrites.

    `begun` is the step from which the attempt starts. Without `leads`, the rank is not the first worker and writes
    nothing.
    """

    def __init__(self, folder: Path, begun: int, leads: bool) -> None:
        self._start_step = begun
        self._file: int | None = None
        if leads:
            self._file = os.open(StatePaths(folder).step, os.O_RDWR | os.O_CREAT, 0o666)
            weakref.finalize(self, os.close, self._file)
        self.write(begun)

    def write(self, step: int) -> None:
        """Write `step` as the last completed step; write errors are ignored so that training continues."""
        if self._file is not None:
            # One write in place after each step, without fsync, survives the death of the process.
            with suppress(OSError):
                os.pwrite(self._file, STEP_MARKER_FORMAT.pack(self._start_step, step), 0)


def read_step_marker(folder: Path) -> tuple[int, int]:
    """Return the first step of the last attempt and its last completed step; zeros if there is no file."""
    try:
        begun, reached = STEP_MARKER_FORMAT.unpack(StatePaths(folder).step.read_bytes())
    except (OSError, struct.error):
        return 0, 0
    return begun, reached


def print_failure(failure: Mapping[str, Any]) -> None:
    """Write a failure to stderr as a line of its own, and wait until the other end of the pipe has read the line.

    MPI_Abort, which ends the ranks after a failure, makes Hydra (MPICH) drop output that it has not read.
    """
    write_stderr(f"\n{FAILURE_PREFIX}{json.dumps(failure)}\n")
    wait_until_read(sys.stderr, READ_TIMEOUT_S)


def parse_failure(line: str) -> dict[str, Any] | None:
    """Return the failure in a line that `print_failure` wrote; None for other lines."""
    if not line.startswith(FAILURE_PREFIX):
        return None
    try:
        failure = load_json(line.removeprefix(FAILURE_PREFIX))
    except ValueError:
        return None
    return failure if isinstance(failure, dict) and "rank" in failure else None
