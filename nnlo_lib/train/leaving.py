"""The end of a rank's process: at once, but not before MPI's launcher has heard that it ends in peace."""

import ctypes
import sys
from typing import NoReturn


def leave(status: int) -> NoReturn:
    """End without taking the interpreter apart, for which torch needs a second; C's exit handlers do run.

    In one of them, not in MPI.Finalize, MPICH takes leave of mpiexec, which kills all ranks when one goes without.
    """
    if (MPI := sys.modules.get("mpi4py.MPI")) and MPI.Is_initialized() and not MPI.Is_finalized():  # noqa: N806
        MPI.Finalize()
    sys.stdout.flush()
    sys.stderr.flush()
    ctypes.PyDLL(None).exit(status)  # PyDLL: no other thread of Python runs any more
    raise AssertionError("exit returned")
