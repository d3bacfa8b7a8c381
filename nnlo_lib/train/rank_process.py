"""A rank as a process: stop flag, files in `state/` for the launcher (identity, failure, end), allocator and exit.

The ranks agree at a step to stop, save together and exit. `state` is the folder `state/` of the run.
"""

import ctypes
import errno
import json
import resource
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from nnlo_lib.comm.communicator import PeerLostError
from nnlo_lib.config.paths import StatePaths
from nnlo_lib.core.atomic_file import atomic_write
from nnlo_lib.core.errors import (
    EXIT_USER_ERROR,
    CheckpointNotSavedError,
    DivergedError,
    ExitReason,
    InvariantError,
    StopRequestedError,
    UserError,
    handle_stop_signals,
)
from nnlo_lib.core.process import ProcessIdentity
from nnlo_lib.core.user_code import error_with_source_line, is_in_user_code
from nnlo_lib.state.attempt_outcome import EXIT_PREEMPTED
from nnlo_lib.state.out_of_memory import is_memory_error
from nnlo_lib.state.training_records import print_failure

SAVE_TIME_FACTOR = 3  # margin over the duration of the last save, because an overloaded file system is slower
# Seconds before the time limit at which a rank requests a stop, or half of the limit if that is shorter.
MIN_SAVE_LEAD_S = 90
DISK_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT)
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # glibc's mallopt parameters
MALLOC_THRESHOLD_BYTES = 1 << 30
SET_TIMER_SLACK = 29  # Linux's prctl option
TIMER_SLACK_NS = 1000


class StopFlag:
    """Requests a stop of this rank after the first stop signal, or shortly before the time limit."""

    def __init__(self, limit: float = float("inf")) -> None:
        """Start the clock; `limit`: seconds from now until the scheduler ends the job."""
        self.signal: str | None = None
        self._raises = False
        self._end = time.monotonic() + limit
        self._lead = min(MIN_SAVE_LEAD_S, limit / 2)

    def reserve_save_time(self, seconds: float) -> None:
        """Set the flag early enough to save before the time limit; `seconds`: duration of the last save."""
        # The lead only grows, because the next save may be as slow as the slowest one.
        self._lead = max(self._lead, SAVE_TIME_FACTOR * seconds)

    def install_handlers(self) -> "StopFlag":
        """Install the handlers of stop signals; return this flag."""
        handle_stop_signals(self._on_signal)
        soft, hard = resource.getrlimit(resource.RLIMIT_CPU)
        # At a soft limit, the kernel sends SIGXCPU; `ulimit -t` sets both limits, and the kernel then sends SIGKILL only.
        if soft == hard != resource.RLIM_INFINITY:
            resource.setrlimit(resource.RLIMIT_CPU, (max(hard // 2, hard - MIN_SAVE_LEAD_S), hard))
        return self

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        # The handler only sets the flag: saving needs all ranks, which agree at the next step. The first
        # signal is the cause that the launcher reports.
        self.signal = self.signal or signal.Signals(number).name
        if self._raises:
            self._raises = False  # once: the exception must not be interrupted by the next one
            raise StopRequestedError(self.signal)

    @contextmanager
    def raised(self) -> Iterator[None]:
        """Raise StopRequestedError at a stop signal in this context, at once if one has arrived before."""
        self._raises = True
        try:
            if self.signal:
                raise StopRequestedError(self.signal)
            yield
        finally:
            self._raises = False

    def __call__(self) -> bool:
        return self.signal is not None or time.monotonic() > self._end - self._lead


def register_rank(state: Path, rank: int) -> None:
    """Write the process identity of a rank, to which the launcher may send signals from then on."""
    _write_status(StatePaths(state).ranks / str(rank), asdict(ProcessIdentity.current()))


def report_failure(state: Path, rank: int, error: BaseException) -> int:
    """Write the failure of a rank for the launcher; return the rank's exit status."""
    reason = failure_reason(error)
    # These errors occur on ranks that are not the cause; the launcher prefers the error of another rank.
    consequence = isinstance(error, PeerLostError | InvariantError | CheckpointNotSavedError)
    # The user's own code is to be corrected, like the experiment; a retry would fail in the same way.
    users = reason == "code error" and not consequence and is_in_user_code(error)
    reason = "user code" if users else reason
    # A full disk raises UserError in atomic_write, but it is no error of the experiment and is retried.
    status = EXIT_USER_ERROR if users or (isinstance(error, UserError) and reason != "disk full") else 1
    trace = "".join(traceback.format_exception(error))
    if users:
        text = f"rank {rank} failed: {error_with_source_line(error)}"
    elif consequence or isinstance(error, UserError):
        text = str(error)
    else:
        # The user can act on a lack of memory without the traceback, which helps with unexpected errors.
        text = f"{type(error).__name__}: {error}" if reason == "out of memory" else trace
    note = {"status": status, "error": text, "certain": not consequence, "traceback": trace}
    note |= {"rank": rank, "time": time.time(), "reason": reason, "dead": getattr(error, "dead", [])}
    try:
        _write_status(StatePaths(state).failures / str(rank), note)
    except UserError:  # The file cannot be written: the launcher reads the failure from stderr.
        print_failure(note)
    return status


def report_end(state: Path, rank: int, done: bool, signal: str | None) -> int:
    """Write that a rank has trained to the end, or has stopped and saved by a `signal`, if any; return its exit status.

    The status is 0 after a stop, too, because MPI launchers kill the ranks that still run when a rank exits with
    another status. It is EXIT_PREEMPTED if the file cannot be written: then only the status can report the stop.
    Without a note of rank 0, which ends last, the launcher takes the status 0 for the end of a process by user code
    or a library. If the disk is full, the published results replace the note.
    """
    if not done:
        try:
            _write_status(StatePaths(state).stopped / str(rank), {"signal": signal})
        except UserError:
            return EXIT_PREEMPTED
    elif rank == 0:
        with suppress(UserError):
            _write_status(StatePaths(state).done / str(rank), {})
    return 0


def failure_reason(error: BaseException) -> ExitReason:
    """Return the exit reason for an exception, from its type and from the chain of its causes."""
    chain = [error]
    while (cause := chain[-1].__cause__) is not None:
        chain.append(cause)
    full = any(isinstance(each, OSError) and each.errno in DISK_FULL_ERRNOS for each in chain)
    if full or isinstance(error, CheckpointNotSavedError):
        return "disk full"
    if any(is_memory_error(each) for each in chain):
        return "out of memory"
    if isinstance(error, PeerLostError):
        return "peer lost"
    if isinstance(error, DivergedError):
        return "diverged"
    return "bad input" if isinstance(error, UserError) else "code error"


def _write_status(path: Path, note: dict[str, Any]) -> None:
    with atomic_write(path) as part:
        part.write_text(json.dumps(note))


def tune_malloc_and_timers() -> None:
    """Let malloc keep freed memory (glibc) and reduce the timer slack (Linux); do nothing on other systems.

    Each step allocates activations of the same sizes as the previous step: returning their memory to the
    kernel and faulting it in again costs time. By default, Linux may end short sleeps 50 microseconds late.
    """
    library = ctypes.CDLL(None)
    # Blocks below the mmap threshold come from the heap, whose freed memory is returned above the trim threshold.
    if hasattr(library, "mallopt"):
        library.mallopt(TRIM_THRESHOLD, MALLOC_THRESHOLD_BYTES)
        library.mallopt(MMAP_THRESHOLD, MALLOC_THRESHOLD_BYTES)
    if hasattr(library, "prctl"):
        library.prctl(SET_TIMER_SLACK, TIMER_SLACK_NS)


def exit_process(status: int) -> NoReturn:
    """Exit without Python's interpreter teardown, which takes about 1 s with torch loaded.

    C exit handlers still run: MPICH disconnects from mpiexec in one of them (not in MPI.Finalize). If a rank
    exits without disconnecting, mpiexec kills all other ranks.
    """
    if (MPI := sys.modules.get("mpi4py.MPI")) and MPI.Is_initialized() and not MPI.Is_finalized():  # noqa: N806
        MPI.Finalize()
    # C's exit does not flush the buffers of Python's streams.
    sys.stdout.flush()
    sys.stderr.flush()
    ctypes.PyDLL(None).exit(status)  # PyDLL keeps the GIL: no other Python thread runs.
    raise AssertionError("exit returned")
