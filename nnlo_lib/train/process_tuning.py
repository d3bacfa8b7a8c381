"""Process settings for training ranks: memory allocator, timers and exit."""

import ctypes
import sys
from typing import NoReturn

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # glibc's mallopt parameters
MALLOC_THRESHOLD_BYTES = 1 << 30
SET_TIMER_SLACK = 29  # Linux's prctl option
TIMER_SLACK_NS = 1000


def tune_malloc_and_timers() -> None:
    """Let malloc keep freed memory (glibc) and reduce the timer slack (Linux); do nothing on other systems.

    Each step allocates activations of the same sizes as the previous step: returning their memory to the
    kernel and faulting it in again costs time. By default, Linux may end short sleeps 50 microseconds late.
    """
    library = ctypes.CDLL(None)
    # Blocks below the mmap threshold come from the heap, of which freed memory is returned only above the
    # trim threshold.
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
