"""A pool of MPI ranks that is started once per test process: programs of many tests run on the same ranks in sequence.

As a script, this module is one rank of the pool.
"""

import atexit
import importlib.util
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
import traceback
import uuid
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from helpers.repository_copy import environment

STARTS = 3  # attempts to start the ranks: MPI may fail to connect them on a busy machine
SMALLEST = 4  # ranks of a pool; a program may use fewer
# Seconds for one start and for one program; STARTS starts and a program take less than lanes.STARTS_TIMEOUT_S.
START_TIMEOUT_S, PROGRAM_TIMEOUT_S = 180, 250
PEER_TIMEOUT_S = 200  # of the communicators
TORCH_SEED = 67280421310721  # torch's default seed in a new process
running: list["Pool"] = []  # at most one pool

Program = tuple[str, str, str]  # module, its file and the name of a function in it


def describe(program: Callable[..., Any]) -> Program:
    """Return what another process needs to load the program, a function at the top of a test module."""
    return program.__module__, program.__code__.co_filename, program.__qualname__


def load(program: Program) -> Callable[..., Any]:
    """Return the function; its module is loaded from its file, under the name that it has in pytest's process."""
    module, file, name = program
    if module not in sys.modules:
        spec = importlib.util.spec_from_file_location(module, file)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[module] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[module])
    return getattr(sys.modules[module], name)


class Pool:
    """An MPI world of `size` ranks. The failure of a program ends all ranks, because their state is then unknown."""

    def __init__(self, size: int) -> None:
        self.size, self._ranks = size, []
        self._output = tempfile.TemporaryFile("w+")  # noqa: SIM115 - the file stays open as long as the ranks run
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(f"\0nnlo-ranks-{uuid.uuid4()}")
            listener.listen(size)
            listener.settimeout(0.2)
            address = listener.getsockname().decode().strip("\0")
            self._process = subprocess.Popen(
                [Path(sys.executable).with_name("mpiexec"), "-n", str(size), sys.executable, "-m", __name__, address],
                env=environment() | {"PYTHONPATH": ":".join(sys.path), "OMP_NUM_THREADS": "1"},
                stdin=subprocess.DEVNULL, stdout=self._output, stderr=self._output,
            )  # fmt: skip
            try:
                self._ranks = self._accept(listener)
            except BaseException:
                self.close()
                raise

    def _accept(self, listener: socket.socket) -> list[Connection]:
        found: dict[int, Connection] = {}
        end = time.monotonic() + START_TIMEOUT_S
        while len(found) < self.size:
            if self._process.poll() is not None or time.monotonic() > end:
                raise ConnectionError(f"{self.size} ranks did not start; {self._text}")
            try:
                connection = Connection(listener.accept()[0].detach())
            except TimeoutError:
                continue
            found[connection.recv()] = connection
        return [found[rank] for rank in range(self.size)]

    def run(self, program: Callable[..., Any], ranks: int, arguments: Sequence[Any]) -> list[Any]:
        """Return the results of a program on each of the first `ranks` ranks."""
        used = self._ranks[:ranks]
        try:
            for connection in used:
                connection.send((describe(program), ranks, arguments))
            results = self._results(used)
            for connection in used:
                connection.send("all ranks have returned")
        except BaseException:
            self.close()
            raise
        return results

    def _results(self, used: list[Connection]) -> list[Any]:
        results: dict[Connection, Any] = {}
        end = time.monotonic() + PROGRAM_TIMEOUT_S
        while missing := [connection for connection in used if connection not in results]:
            ready = wait(missing, end - time.monotonic())
            assert ready, f"ranks {[used.index(each) for each in missing]} hang; {self._text}"
            results |= {connection: self._result(connection) for connection in ready}
        return [results[connection] for connection in used]

    def _result(self, connection: Connection) -> Any:
        try:
            failure, result = connection.recv()
        except (EOFError, ConnectionError):
            failure, result = f"rank {self._ranks.index(connection)} has exited", None
        assert not failure, f"{failure}; {self._text}"
        return result

    @property
    def _text(self) -> str:
        self._output.seek(0)
        return f"output of the ranks: {self._output.read()[-3000:]}"

    def close(self) -> None:
        """End the ranks: each rank exits when its connection is closed."""
        running[:] = []
        for connection in self._ranks:
            connection.close()
        self._process.terminate()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@atexit.register
def close() -> None:
    """End the ranks of the pool, if any."""
    for pool in list(running):
        pool.close()


def run(program: Callable[..., Any], ranks: int, *arguments: Any) -> list[Any]:
    """Run a program on the ranks of the pool; start a pool if there is no pool or a smaller one."""
    if running and running[0].size < ranks:
        running[0].close()
    if not running:
        running.append(_start(max(ranks, SMALLEST)))
    return running[0].run(program, ranks, arguments)


def _start(size: int) -> Pool:
    for _ in range(STARTS - 1):
        try:
            return Pool(size)
        except ConnectionError as error:
            print(f"{error}\nonce more")
    return Pool(size)


def serve(address: str) -> None:
    """Run the received programs on this rank, each with a new communicator and newly seeded random generators."""
    from mpi4py import MPI

    with socket.socket(socket.AF_UNIX) as client:
        client.connect(f"\0{address}")
        pool = Connection(client.detach())
    rank, size = MPI.COMM_WORLD.Get_rank(), MPI.COMM_WORLD.Get_size()
    first = [MPI.COMM_WORLD.Split(0 if rank < ranks else MPI.UNDEFINED) for ranks in range(1, size + 1)]
    pool.send(rank)
    while True:
        program, ranks, arguments = pool.recv()
        _run_one(pool, first[ranks - 1].Dup(), program, arguments)


def _run_one(pool: Connection, world: Any, program: Program, arguments: tuple[Any, ...]) -> None:
    import torch

    from nnlo_lib.comm.mpi.communicator import MPICommunicator

    random.seed(TORCH_SEED)
    torch.manual_seed(TORCH_SEED)
    try:
        comm = MPICommunicator(world, timeout=PEER_TIMEOUT_S)
        result = load(program)(comm, *arguments)
    except BaseException:
        pool.send((traceback.format_exc(), None))
    else:
        pool.send(("", result))
        pool.recv()  # after all ranks have returned
        comm.free()


if __name__ == "__main__":
    try:
        serve(sys.argv[1])
    except (EOFError, ConnectionError):
        # Without MPI's finalization, which may wait forever for another rank.
        os._exit(0)
