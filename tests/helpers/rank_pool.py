"""MPI ranks that stay: programs of many tests run on them, one after the other, without a start for each."""

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

STARTS = 3  # tries to bring ranks up: MPI may fail to connect them on a busy machine
SMALLEST = 4  # ranks, of which a program may use fewer
# seconds for a start, and for a program; with all STARTS less than lanes.MPI_TIMEOUT
COMING_UP, PATIENCE = 180, 250
running: list["Pool"] = []  # none or one


class Pool:
    """An MPI world of `size` ranks. A program that fails ends them all, for whatever they are in the middle of."""

    def __init__(self, size: int) -> None:
        self.size, self._ranks = size, []
        self._said = tempfile.TemporaryFile("w+")  # noqa: SIM115 - it is there as long as the ranks are
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
        """Return what the program returns on each of the first `ranks` ranks."""
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
        """End the ranks: each ends when its connection does."""
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
    """End the ranks that are there."""
    for pool in list(running):
        pool.close()


def run(module: str, name: str, ranks: int, *arguments: Any) -> list[Any]:
    """Run a program on ranks of the pool, which is made if there is none, or none so large."""
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
