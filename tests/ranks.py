"""Run a function on every rank of a communicator: simulated here, or real MPI ranks under mpiexec."""

import importlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from checkout import environment

from nnlo_lib.comm.communicator import Communicator
from nnlo_lib.comm.simulated import World

TRANSPORTS = [("simulated", 2), ("simulated", 4), ("mpi", 2), ("mpi", 4)]
IDS = [f"{transport}-{ranks}" for transport, ranks in TRANSPORTS]


def on_ranks(program: Callable[..., Any], transport: str, ranks: int, *arguments: Any) -> list[Any]:
    """Return what `program(comm, *arguments)` returns on each rank, as JSON carries it."""
    if transport == "simulated":
        return json.loads(json.dumps(World(ranks).run(lambda comm: program(comm, *arguments))))
    command = [
        Path(sys.executable).with_name("mpiexec"), "-n", str(ranks), sys.executable, __file__,
        program.__module__, program.__qualname__, json.dumps(arguments),
    ]  # fmt: skip
    paths = {"PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(
        command, env=environment() | paths, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Be one MPI rank; rank 0 prints what all returned."""
    from mpi4py import MPI

    from nnlo_lib.comm.mpi import MPICommunicator

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
