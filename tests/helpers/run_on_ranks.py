"""Run a function of a test module on every rank: on simulated ranks in this process, or on MPI ranks.

As a script, this module is one rank of a separate MPI world, for tests in which ranks exit.
"""

import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from helpers import rank_pool
from nnlo_lib.comm.simulated.communicator import SimulatedWorld

TRANSPORTS = [("simulated", 2), ("simulated", 4), ("mpi", 2), ("mpi", 4)]
IDS = [f"{transport}-{ranks}" for transport, ranks in TRANSPORTS]
ERROR_FOLDER = "RANK_ERROR_FOLDER"  # variable with the folder of the ranks' error messages


def on_ranks(program: Callable[..., Any], transport: str, ranks: int, *arguments: Any) -> list[Any]:
    """Return the result of `program(comm, *arguments)` on each rank, converted to JSON and back."""
    arguments = json.loads(json.dumps(arguments))
    if transport == "simulated":
        results = SimulatedWorld(ranks).run(lambda comm: program(comm, *arguments))
    else:
        results = rank_pool.run(program, ranks, *arguments)
    return json.loads(json.dumps(results))


def world_command(program: Callable[..., Any], ranks: int, *arguments: Any) -> list:
    """Return the command that runs a program on the ranks of an MPI world of its own."""
    mpiexec = Path(sys.executable).with_name("mpiexec")
    script = [sys.executable, __file__, *rank_pool.describe(program), json.dumps(arguments)]
    return [mpiexec, "-n", str(ranks), *script]


def main() -> None:
    """Run the program on this MPI rank; rank 0 prints the results of all ranks as JSON."""
    from mpi4py import MPI

    from nnlo_lib.comm.mpi.communicator import MPICommunicator

    *program, arguments = sys.argv[1:]
    comm = MPICommunicator(timeout=20)
    try:
        result = rank_pool.load((program[0], program[1], program[2]))(comm, *json.loads(arguments))
    except BaseException as error:
        # In a file, too: Abort can end the launcher before it has forwarded all of stderr.
        if folder := os.environ.get(ERROR_FOLDER):
            path = Path(folder, f"error-{comm.rank}")
            path.with_suffix(".part").write_text(f"{type(error).__name__}: {error}")
            path.with_suffix(".part").rename(path)
        traceback.print_exc()
        MPI.COMM_WORLD.Abort(1)
    everyones = comm.gather(result)
    if comm.rank == 0:
        print(json.dumps(everyones))


if __name__ == "__main__":
    main()
