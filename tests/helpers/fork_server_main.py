"""The fork server: a process that has imported the modules of trainings and forks one process per request.

Usage: `python fork_server_main.py ADDRESS PYTHON`; see fork_server.py.
"""

import fcntl
import gc
import importlib
import marshal
import os
import random
import runpy
import select
import signal
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass

IMPORTED = [
    "torch", "torch._dynamo", "h5py", "sklearn.datasets", "mpi4py", "nnlo_lib.train.rank",
    "nnlo_lib.train.evaluation.evaluate", "nnlo_lib.comm.simulated.communicator", "nnlo_lib.workflow.single_run",
    "nnlo_lib.experiment.load", "nnlo_lib.commands.run", "nnlo_lib.commands.run",
    "nnlo_lib.commands.results", "nnlo_lib.commands.results",
]  # fmt: skip
COMMAND = "nnlo_lib.cli"
READY = b"!"
HIGH = 500  # a fork has no open file descriptors from this number on


@dataclass(frozen=True)
class Request:
    """Request of a stub: run a module in a fork.

    Attributes:
        words: command-line arguments.
        folder: working directory.
        files: descriptors of stdin, stdout and stderr, then of a rank's PMI connection to mpiexec.
    """

    module: str
    words: list[str]
    folder: str
    environment: dict[str, str]
    files: list[int]


@dataclass(frozen=True)
class Fork:
    """A forked process, its pidfd `handle`, readable after the process ends, and the connection to its stub."""

    pid: int
    handle: int
    stub: socket.socket

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send a signal to the fork; the system does not reuse its pid before `waitpid`."""
        os.kill(self.pid, number)


class Forge:
    """Fork server: forks on request, forwards signals to forks and sends their exit statuses to the stubs."""

    def __init__(self, door: socket.socket, master: int) -> None:
        self._door, self._master = door, master
        self._forks: dict[int, Fork] = {}  # by handle and by descriptor of the stub's connection
        self._poll = select.poll()
        self._poll.register(door, select.POLLIN)
        self._poll.register(master, select.POLLIN)

    def serve(self) -> Request | None:
        """Return the request in a fork; return None in the server after its parent process has ended."""
        while True:
            for file, _ in self._poll.poll():
                if file == self._master:
                    return self._leave()
                if file == self._door.fileno():
                    if request := self._answer():
                        return request
                elif fork := self._forks.get(file):
                    self._bury(fork) if file == fork.handle else self._pass_on(fork)

    def _leave(self) -> None:
        for fork in self._forks.values():
            fork.kill()

    def _answer(self) -> Request | None:
        stub = self._door.accept()[0]
        try:
            request = _received(stub)
        except (OSError, EOFError):  # the stub was killed before it sent the whole request
            return stub.close()
        if not (pid := os.fork()):
            return request
        for file in request.files:
            os.close(file)
        fork = Fork(pid, os.pidfd_open(pid), stub)
        for file in (fork.handle, stub.fileno()):
            self._forks[file] = fork
            self._poll.register(file, select.POLLIN)
        return None

    def _pass_on(self, fork: Fork) -> None:
        """Forward the signals that the stub received; kill the fork if its stub has ended."""
        with suppress(ConnectionError):
            if numbers := fork.stub.recv(64):
                for number in numbers:
                    fork.kill(number)
                return
        self._forget(fork.stub.fileno())
        fork.kill()

    def _bury(self, fork: Fork) -> None:
        status = os.waitstatus_to_exitcode(os.waitpid(fork.pid, 0)[1])
        self._forget(fork.handle)
        os.close(fork.handle)
        if fork.stub.fileno() in self._forks:
            self._forget(fork.stub.fileno())
        with suppress(OSError):
            fork.stub.sendall(status.to_bytes(4, "little", signed=True))
        fork.stub.close()

    def _forget(self, file: int) -> None:
        self._poll.unregister(file)
        del self._forks[file]


def _received(stub: socket.socket) -> Request:
    size, files, _, _ = socket.recv_fds(stub, 8, 4)
    if not size:
        raise EOFError
    with stub.makefile("rb") as stream:
        return Request(*marshal.loads(stream.read(int.from_bytes(size, "little"))), files)


def become(request: Request, python: str) -> None:
    """Give a fork the files, folder, environment and arguments of its stub, before the main program runs."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _take_files(request)
    os.chdir(request.folder)
    os.environ.clear()
    os.environ.update(request.environment)
    sys.executable, sys.argv = python, ["nnlo", *request.words]
    sys.path[:0] = list(filter(None, request.environment.get("PYTHONPATH", "").split(":")))
    random.seed()
    importlib.import_module("torch").set_num_threads(
        int(os.environ.get("OMP_NUM_THREADS", os.cpu_count() or 1))
    )


def _take_files(request: Request) -> None:
    """Duplicate the stub's descriptors to the numbers they have in the stub, and close all others."""
    high = [fcntl.fcntl(file, fcntl.F_DUPFD, HIGH) for file in request.files]
    os.closerange(3, HIGH)
    mpiexec = [int(request.environment["PMI_FD"])] if "PMI_FD" in request.environment else []
    for file, number in zip(high, [0, 1, 2, *mpiexec], strict=True):
        os.dup2(file, number)
        os.close(file)
    sys.stdin, sys.stdout, sys.stderr = open(0, closefd=False), _writer(1), _writer(2)  # noqa: SIM115


def _writer(number: int) -> object:
    stream = open(number, "w", closefd=False)  # noqa: SIM115
    stream.reconfigure(line_buffering=number == 2 or stream.isatty())
    return stream


def main() -> Request | None:
    """Run the fork server; return the request in a fork, None in the server."""
    address, python = sys.argv[1:]
    sys.path[:] = [folder for folder in sys.path if folder != os.path.dirname(__file__)]
    for module in IMPORTED:
        importlib.import_module(module)
    assert "mpi4py.MPI" not in sys.modules, "MPI would not connect what was forked"
    assert len(os.listdir("/proc/self/task")) == 1, "threads do not survive a fork"
    gc.freeze()  # a collection would write to, and so copy, all memory that the processes share
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(f"\0{address}")
        door.listen(100)
        os.write(1, READY)
        request = Forge(door, sys.stdin.fileno()).serve()
    if request:
        become(request, python)
    return request


def run(module: str) -> None:
    """Run the main program of `nnlo`, or a module as `python -m` does."""
    if module == COMMAND:
        return importlib.import_module(module).main()
    sys.path.insert(0, "")
    sys.modules.pop(module, None)  # the fork server has already imported the module under this name
    return runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__" and (request := main()):
    run(request.module)
