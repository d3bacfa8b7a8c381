"""One MPI rank of a pool: runs programs until the pool closes the connection."""

import importlib
import os
import random
import socket
import sys
import traceback
from multiprocessing.connection import Connection
from typing import Any

SILENCE = 200  # seconds; timeout of the communicators
SEED = 67280421310721  # torch's default seed in a new process


def serve(address: str) -> None:
    """Run the received programs; each program gets a new communicator and newly seeded random generators."""
    from mpi4py import MPI

    with socket.socket(socket.AF_UNIX) as door:
        door.connect(f"\0{address}")
        master = Connection(door.detach())
    rank, size = MPI.COMM_WORLD.Get_rank(), MPI.COMM_WORLD.Get_size()
    first = [MPI.COMM_WORLD.Split(0 if rank < ranks else MPI.UNDEFINED) for ranks in range(1, size + 1)]
    master.send(rank)
    while True:
        module, name, ranks, arguments = master.recv()
        _run(master, first[ranks - 1].Dup(), module, name, arguments)


def _run(master: Connection, world: Any, module: str, name: str, arguments: tuple[Any, ...]) -> None:
    import torch

    from nnlo_lib.comm.mpi.communicator import MPICommunicator

    random.seed(SEED)
    torch.manual_seed(SEED)
    try:
        comm = MPICommunicator(world, timeout=SILENCE)
        result = getattr(importlib.import_module(module), name)(comm, *arguments)
    except BaseException:
        master.send((traceback.format_exc(), None))
    else:
        master.send(("", result))
        master.recv()  # after all ranks have ended the program
        comm.free()


def main() -> None:
    """Serve programs; exit without MPI's finalization, which may wait forever for another rank."""
    try:
        serve(sys.argv[1])
    except (EOFError, ConnectionError):
        os._exit(0)


if __name__ == "__main__":
    main()
