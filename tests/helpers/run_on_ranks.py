"""Run a function on every rank of a communicator: on simulated ranks in this process, or on MPI ranks.

As a script this module is one rank of a separate MPI world, for tests in which ranks exit.
"""

import importlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from helpers import rank_pool
from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.comm.simulated.communicator import SimulatedWorld

TRANSPORTS = [("simulated", 2), ("simulated", 4), ("mpi", 2), ("mpi", 4)]
IDS = [f"{transport}-{ranks}" for transport, ranks in TRANSPORTS]
ERROR_FOLDER = "RANK_ERROR_FOLDER"  # variable with the folder of the ranks' error messages
EVERYWHERE = pytest.mark.parametrize(("transport", "ranks"), TRANSPORTS, ids=IDS)


def on_ranks(program: Callable[..., Any], transport: str, ranks: int, *arguments: Any) -> list[Any]:
    """Return the result of `program(comm, *arguments)` on each rank, converted to JSON and back.

    Args:
        program: module-level function.
        transport: simulated or mpi.
        ranks: number of ranks.
        *arguments: arguments that JSON can represent.
    """
    if transport == "simulated":
        return json.loads(json.dumps(SimulatedWorld(ranks).run(lambda comm: program(comm, *arguments))))
    arguments = json.loads(json.dumps(arguments))
    results = rank_pool.run(program.__module__, program.__qualname__, ranks, *arguments)
    return json.loads(json.dumps(results))


def main() -> None:
    """Run the program on this MPI rank; rank 0 prints the results of all ranks as JSON."""
    from mpi4py import MPI

    from nnlo_lib.comm.mpi.communicator import MPICommunicator

    module, name, arguments = sys.argv[1:]
    comm: Communicator = MPICommunicator(timeout=20)
    try:
        result = getattr(importlib.import_module(module), name)(comm, *json.loads(arguments))
    except BaseException as error:
        import traceback

        # In a file, too: Abort can end the launcher before it has forwarded all of stderr.
        if folder := os.environ.get(ERROR_FOLDER):
            Path(folder, f"error-{comm.rank}").write_text(f"{type(error).__name__}: {error}")
        traceback.print_exc()
        MPI.COMM_WORLD.Abort(1)
    everyones = comm.gather(result)
    if comm.rank == 0:
        print(json.dumps(everyones))


if __name__ == "__main__":
    main()
