"""Settings of the process that a training rank wants and a general program does not."""

import ctypes
import sys
from typing import NoReturn

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # glibc's mallopt parameters
MALLOC_THRESHOLD_BYTES = 1 << 30
SET_TIMER_SLACK = 29  # Linux's prctl option
TIMER_SLACK_NS = 1000


def tune_malloc_and_timers() -> None:
    """Keep freed memory, and nap no longer than asked. Other systems are left as they are.

    Activations of every step are as large as those of the last: handing them back to the kernel and faulting them in
    again costs time. Short naps end 50 microseconds late unless told otherwise.
    """
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        library.mallopt(TRIM_THRESHOLD, MALLOC_THRESHOLD_BYTES)
        library.mallopt(MMAP_THRESHOLD, MALLOC_THRESHOLD_BYTES)
    if hasattr(library, "prctl"):
        library.prctl(SET_TIMER_SLACK, TIMER_SLACK_NS)


def exit_process(status: int) -> NoReturn:
    """End without taking the interpreter apart, for which torch needs a second; C's exit handlers do run.

    In one of them, not in MPI.Finalize, MPICH takes leave of mpiexec, which kills all ranks when one goes without.
    """
    if (MPI := sys.modules.get("mpi4py.MPI")) and MPI.Is_initialized() and not MPI.Is_finalized():  # noqa: N806
        MPI.Finalize()
    sys.stdout.flush()
    sys.stderr.flush()
    ctypes.PyDLL(None).exit(status)  # PyDLL: no other thread of Python runs any more
    raise AssertionError("exit returned")
