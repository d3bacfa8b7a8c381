"""What ranks leave in `state/` for their launcher, a file each: who they are, what went wrong, why they stopped."""

import errno
import json
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nnlo_lib.comm.communicator import PeerLostError
from nnlo_lib.data.atomic import replacing
from nnlo_lib.errors import EXIT_USER_ERROR, DivergedError, InvariantError, NotSavedError, UserError
from nnlo_lib.state.outcome import EXIT_PREEMPTED
from nnlo_lib.state.process import Process
from nnlo_lib.state.reason import Reason

FULL = (errno.ENOSPC, errno.EDQUOT)
NO_MEMORY = ("can't allocate memory", "out of memory")  # so torch says, on a CPU and on a GPU


def announce(state: Path, rank: int) -> None:
    """Say which process a rank is; from now on it hears signals."""
    _leave(state / "ranks" / str(rank), asdict(Process.own()))


def confess(state: Path, rank: int, error: BaseException) -> int:
    """Say what went wrong in a rank; return its exit status."""
    reason = reason_of(error)
    consequence = isinstance(error, PeerLostError | InvariantError | NotSavedError)
    status = EXIT_USER_ERROR if isinstance(error, UserError) and reason != "disk full" else 1
    own = consequence or isinstance(error, UserError)
    text = str(error) if own else "".join(traceback.format_exception(error))
    note = {"status": status, "error": text, "certain": not consequence}
    note |= {"rank": rank, "time": time.time(), "reason": reason}
    try:
        _leave(state / "failures" / str(rank), note)
    except UserError:  # the disk refuses; the launcher passes on what it hears
        print(f"rank {rank}: {text}", file=sys.stderr, flush=True)
    return status


def stopped(state: Path, rank: int, signal: str | None) -> int:
    """Say that a rank has stopped, saved, and which signal it had heard, if one; return its exit status.

    That is 0: MPI's launchers kill all other ranks, which may not have left yet, when one ends with another.
    """
    try:
        _leave(state / "stopped" / str(rank), {"signal": signal})
    except UserError:  # the disk refuses
        return EXIT_PREEMPTED
    return 0


def reason_of(error: BaseException) -> Reason:
    """Say what an exception means, and those that it came from."""
    chain = list(_chain(error))
    if isinstance(error, NotSavedError) or any(_tells_of_full_disk(each) for each in chain):
        return "disk full"
    if any(isinstance(each, MemoryError) or _tells_of_memory(each) for each in chain):
        return "out of memory"
    if isinstance(error, PeerLostError):
        return "peer lost"
    if isinstance(error, DivergedError):
        return "diverged"
    return "bad input" if isinstance(error, UserError) else "code error"


def _tells_of_full_disk(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno in FULL


def _tells_of_memory(error: BaseException) -> bool:
    return isinstance(error, RuntimeError) and any(words in str(error) for words in NO_MEMORY)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def _leave(path: Path, note: dict[str, Any]) -> None:
    with replacing(path) as part:
        part.write_text(json.dumps(note))
