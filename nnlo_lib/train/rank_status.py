"""Files in `state/` that ranks write for the launcher: process identity, failure, stop."""

import errno
import json
import time
import traceback
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nnlo_lib.comm.communicator import PeerLostError
from nnlo_lib.config.paths import StatePaths
from nnlo_lib.core.atomic_file import atomic_write
from nnlo_lib.core.errors import (
    EXIT_USER_ERROR,
    CheckpointNotSavedError,
    DivergedError,
    InvariantError,
    UserError,
)
from nnlo_lib.core.exit_reason import ExitReason
from nnlo_lib.core.process_identity import ProcessIdentity
from nnlo_lib.core.user_code import error_with_source_line, is_in_user_code
from nnlo_lib.state.attempt_outcome import EXIT_PREEMPTED
from nnlo_lib.state.out_of_memory import is_memory_error
from nnlo_lib.state.printed_failure import print_failure

DISK_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT)


def register_rank(state: Path, rank: int) -> None:
    """Write the process identity of a rank, to which the launcher may send signals from then on."""
    _write_status(StatePaths(state).ranks / str(rank), asdict(ProcessIdentity.current()))


def report_failure(state: Path, rank: int, error: BaseException) -> int:
    """Write the failure of a rank for the launcher; return the rank's exit status.

    Args:
        state: folder `state/` of the run.
        rank: rank that failed.
        error: the exception that ended it.
    """
    reason = failure_reason(error)
    # These errors occur on ranks that are not the cause; the launcher prefers the error of another rank.
    consequence = isinstance(error, PeerLostError | InvariantError | CheckpointNotSavedError)
    # The user's own code is to be corrected, like the experiment; a retry would fail in the same way.
    users = reason == "code error" and not consequence and is_in_user_code(error)
    reason = "bad input" if users else reason
    # A full disk raises UserError in atomic_write, but it is no error of the experiment and is retried.
    status = EXIT_USER_ERROR if users or (isinstance(error, UserError) and reason != "disk full") else 1
    trace = "".join(traceback.format_exception(error))
    if users:
        text = f"rank {rank} failed: {error_with_source_line(error)}"
    else:
        text = _message(error, reason, trace, is_complete=consequence or isinstance(error, UserError))
    note = {"status": status, "error": text, "certain": not consequence, "traceback": trace}
    note |= {"rank": rank, "time": time.time(), "reason": reason, "dead": getattr(error, "dead", [])}
    try:
        _write_status(StatePaths(state).failures / str(rank), note)
    except UserError:  # The file cannot be written: the launcher reads the failure from stderr.
        print_failure(note)
    return status


def _message(error: BaseException, reason: ExitReason, trace: str, is_complete: bool) -> str:
    """Return the message of an error for the user; a traceback helps only with unexpected errors.

    Args:
        error: the error.
        reason: exit reason of the error.
        trace: the traceback with the error.
        is_complete: whether the text of the error says all that a user needs.
    """
    if is_complete:
        return str(error)
    return f"{type(error).__name__}: {error}" if reason == "out of memory" else trace


def report_end(state: Path, rank: int, done: bool, signal: str | None) -> int:
    """Write that a rank has trained to the end, or has stopped and saved; return its exit status.

    Without a note of rank 0, which ends last, the launcher takes the status 0 for the end of a process by user code
    or a library. If the disk is full, the published results replace the note.

    Args:
        state: folder `state/` of the run.
        rank: the rank.
        done: whether it has trained to the end.
        signal: name of the signal that requested a stop, if any.
    """
    if not done:
        return report_stopped(state, rank, signal)
    if rank == 0:
        with suppress(UserError):
            _write_status(StatePaths(state).done / str(rank), {})
    return 0


def report_stopped(state: Path, rank: int, signal: str | None) -> int:
    """Write that a rank has stopped and saved; return its exit status.

    The status is 0, because MPI launchers kill the ranks that still run when a rank exits with another
    status. It is EXIT_PREEMPTED if the file cannot be written.

    Args:
        state: folder `state/` of the run.
        rank: rank that stopped.
        signal: name of the signal that requested the stop; None without a signal, for example near the time
            limit.
    """
    try:
        _write_status(StatePaths(state).stopped / str(rank), {"signal": signal})
    except UserError:  # The file cannot be written: only the status can report the stop.
        return EXIT_PREEMPTED
    return 0


def failure_reason(error: BaseException) -> ExitReason:
    """Return the exit reason for an exception, from its type and from the chain of its causes."""
    chain = list(_chain(error))
    if isinstance(error, CheckpointNotSavedError) or any(_is_disk_full(each) for each in chain):
        return "disk full"
    if any(is_memory_error(each) for each in chain):
        return "out of memory"
    if isinstance(error, PeerLostError):
        return "peer lost"
    if isinstance(error, DivergedError):
        return "diverged"
    return "bad input" if isinstance(error, UserError) else "code error"


def _is_disk_full(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno in DISK_FULL_ERRNOS


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def _write_status(path: Path, note: dict[str, Any]) -> None:
    with atomic_write(path) as part:
        part.write_text(json.dumps(note))
