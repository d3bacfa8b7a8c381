"""A pool of MPI ranks: programs of many tests run on the same ranks in sequence, without restarting MPI."""

import atexit
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from helpers import rank_pool_main
from helpers.repository_copy import environment

STARTS = 3  # attempts to start the ranks: MPI may fail to connect them on a busy machine
SMALLEST = 4  # ranks of a pool; a program may use fewer
# Seconds for one start and for one program; STARTS starts and a program take less than lanes.STARTS_TIMEOUT_S.
COMING_UP, PATIENCE = 180, 250
running: list["Pool"] = []  # at most one pool


class Pool:
    """An MPI world of `size` ranks. The failure of a program ends all ranks, because their state is then unknown."""

    def __init__(self, size: int) -> None:
        self.size, self._ranks = size, []
        self._said = tempfile.TemporaryFile("w+")  # noqa: SIM115 - the file stays open as long as the ranks run
        with socket.socket(socket.AF_UNIX) as door:
            door.bind(f"\0nnlo-ranks-{uuid.uuid4()}")
            door.listen(size)
            door.settimeout(0.2)
            self._process = self._start(door.getsockname().decode().strip("\0"))
            try:
                self._ranks = self._meet(door)
            except BaseException:
                self.close()
                raise

    def _start(self, address: str) -> "subprocess.Popen[bytes]":
        mpiexec = Path(sys.executable).with_name("mpiexec")
        return subprocess.Popen(
            [mpiexec, "-n", str(self.size), sys.executable, rank_pool_main.__file__, address],
            env=environment() | {"PYTHONPATH": ":".join(sys.path), "OMP_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL, stdout=self._said, stderr=self._said,
        )  # fmt: skip

    def _meet(self, door: socket.socket) -> list[Connection]:
        found: dict[int, Connection] = {}
        end = time.monotonic() + COMING_UP
        while len(found) < self.size:
            if self._process.poll() is not None or time.monotonic() > end:
                raise ConnectionError(f"{self.size} ranks did not come up; {self._words}")
            try:
                connection = Connection(door.accept()[0].detach())
            except TimeoutError:
                continue
            found[connection.recv()] = connection
        return [found[rank] for rank in range(self.size)]

    def run(self, module: str, name: str, ranks: int, arguments: Sequence[Any]) -> list[Any]:
        """Return the results of a program on each of the first `ranks` ranks.

        Args:
            module: importable module of the program.
            name: name of the function in the module.
            ranks: number of ranks that run the program.
            arguments: arguments of the function after the communicator.
        """
        used = self._ranks[:ranks]
        try:
            for connection in used:
                connection.send((module, name, ranks, arguments))
            results = self._results(used)
            for connection in used:
                connection.send("all have ended")
        except BaseException:
            self.close()
            raise
        return results

    def _results(self, used: list[Connection]) -> list[Any]:
        results: dict[Connection, Any] = {}
        end = time.monotonic() + PATIENCE
        while missing := [connection for connection in used if connection not in results]:
            ready = wait(missing, end - time.monotonic())
            assert ready, f"ranks {[used.index(each) for each in missing]} hang; {self._words}"
            results |= {connection: self._result(connection) for connection in ready}
        return [results[connection] for connection in used]

    def _result(self, connection: Connection) -> Any:
        try:
            failure, result = connection.recv()
        except (EOFError, ConnectionError):
            failure, result = f"rank {self._ranks.index(connection)} is gone", None
        assert not failure, f"{failure}; {self._words}"
        return result

    @property
    def _words(self) -> str:
        self._said.seek(0)
        return f"the ranks said: {self._said.read()[-3000:]}"

    def close(self) -> None:
        """End the ranks: each rank exits when its connection is closed."""
        running[:] = []
        for connection in self._ranks:
            connection.close()
        self._process.terminate()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@atexit.register
def close() -> None:
    """End the ranks of the pool, if any."""
    for pool in list(running):
        pool.close()


def run(module: str, name: str, ranks: int, *arguments: Any) -> list[Any]:
    """Run a program on the ranks of the pool; start a pool if there is no pool or a smaller one."""
    if running and running[0].size < ranks:
        running[0].close()
    if not running:
        running.append(_started(max(ranks, SMALLEST)))
    return running[0].run(module, name, ranks, arguments)


def _started(size: int) -> Pool:
    for _ in range(STARTS - 1):
        try:
            return Pool(size)
        except ConnectionError as error:
            print(f"{error}\nonce more")
    return Pool(size)
