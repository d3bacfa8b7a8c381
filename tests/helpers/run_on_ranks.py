"""Run a function on every rank of a communicator: simulated here, or on real MPI ranks.

As a script this is one rank of a world of its own, for tests in which ranks die.
"""

import importlib
import json
import sys
from collections.abc import Callable
from typing import Any

import pytest

from helpers import rank_pool
from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.comm.simulated.communicator import SimulatedWorld

TRANSPORTS = [("simulated", 2), ("simulated", 4), ("mpi", 2), ("mpi", 4)]
IDS = [f"{transport}-{ranks}" for transport, ranks in TRANSPORTS]
EVERYWHERE = pytest.mark.parametrize(("transport", "ranks"), TRANSPORTS, ids=IDS)


def on_ranks(program: Callable[..., Any], transport: str, ranks: int, *arguments: Any) -> list[Any]:
    """Return what `program(comm, *arguments)` returns on each rank, as JSON carries it."""
    if transport == "simulated":
        return json.loads(json.dumps(SimulatedWorld(ranks).run(lambda comm: program(comm, *arguments))))
    arguments = json.loads(json.dumps(arguments))
    results = rank_pool.run(program.__module__, program.__qualname__, ranks, *arguments)
    return json.loads(json.dumps(results))


def main() -> None:
    """Be one MPI rank; rank 0 prints what all returned."""
    from mpi4py import MPI

    from nnlo_lib.comm.mpi.communicator import MPICommunicator

    module, name, arguments = sys.argv[1:]
    comm: Communicator = MPICommunicator(timeout=20)
    try:
        result = getattr(importlib.import_module(module), name)(comm, *json.loads(arguments))
    except BaseException:
        import traceback

        traceback.print_exc()
        MPI.COMM_WORLD.Abort(1)
    everyones = comm.gather(result)
    if comm.rank == 0:
        print(json.dumps(everyones))


if __name__ == "__main__":
    main()
