"""The fork server: a process that has imported the modules of a workflow's jobs, and forks one process per request.

Imports take seconds per process, which is most of the time of a small experiment: a training on two ranks starts its script, its
ranks and its evaluation. Only for jobs of this machine without GPUs, because CUDA does not survive a fork.
"""

import ctypes
import fcntl
import gc
import importlib
import marshal
import os
import random
import runpy
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

from nnlo_lib.config import Experiment
from nnlo_lib.core.errors import STOP_SIGNALS
from nnlo_lib.core.installation import SCRIPTS
from nnlo_lib.core.logging_setup import get_logger
from nnlo_lib.core.process import interpreter_folder
from nnlo_lib.launch import fork_client

LAUNCHERS = ("mpiexec", "hydra_pmi_proxy")  # the launcher looks for them in the folder of its interpreter
IMPORTED = [
    "torch", "h5py", "mpi4py", "nnlo_lib.train.rank",
    "nnlo_lib.train.evaluation.evaluate", "nnlo_lib.comm.simulated.communicator", "nnlo_lib.workflow.single_run",
    "nnlo_lib.experiment.load", "nnlo_lib.commands.run", "nnlo_lib.commands.results", "nnlo_lib.commands.task",
    "nnlo_lib.executors.trial_job", "nnlo_lib.report.page",
]  # fmt: skip
FORWARDED = [*map(int, STOP_SIGNALS), int(signal.SIGQUIT)]
HIGH = 500  # a fork has no open file descriptors from this number on
REQUEST_TIMEOUT_S = 5  # a client sends its request at once, unless it is stopped; the other forks wait for it
PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl(2)
logger = get_logger(__name__)
_started: list["subprocess.Popen[bytes]"] = []  # their stdin is closed when this process ends


def can_fork(experiment: Experiment) -> bool:
    """Return False if jobs use GPUs, or a container, whose processes are not of this machine's Python, or NNLO_NO_FORK is set."""
    runs = experiment.variants.values()
    plain = all(not run.parallel.gpus_per_rank and not run.resources.container for run in runs)
    return plain and not os.environ.get("NNLO_NO_FORK")


def start_fork_server(modules: Sequence[str] = IMPORTED, scripts: Path = SCRIPTS) -> Path:
    """Start the fork server, which ends with this process and the last fork; return the folder of its `python`.

    It imports the modules before its first fork; a client waits until then. Programs of forks are those of `scripts` and the
    modules of nnlo_lib. After the end of the server, this `python` is the interpreter of this process. Without a folder for
    a socket and a program, log a warning and return the folder of the interpreter.
    """
    folder = None
    with socket.socket(socket.AF_UNIX) as door:
        try:
            # Only this user may enter it, and so connect.
            folder = Path(tempfile.mkdtemp(prefix="nnlo-fork-"))
            address, python = folder / "socket", folder / "python"
            last = f"\nrun_in_fork({str(address)!r}, {sys.executable!r}, {str(scripts)!r}, {FORWARDED})\n"
            python.write_text(f"#!{sys.executable} -ISE\n{Path(fork_client.__file__).read_text()}{last}")
            python.chmod(0o755)
            for name in LAUNCHERS:
                if (program := Path(sys.executable).with_name(name)).exists():
                    (folder / name).symlink_to(program)
            door.bind(f"{address}.part")  # refused if the path is too long
            # Refused if the file system allows no programs, or the path of the interpreter has a space.
            subprocess.run([python, "-ISc", ""], check=True, capture_output=True)
        except (OSError, subprocess.SubprocessError) as error:
            place = folder or tempfile.tempdir or "TMPDIR"
            if folder:
                shutil.rmtree(folder, ignore_errors=True)
            logger.warning(
                f"jobs import torch each, which takes seconds per job, because the folder {place} cannot be used ({error}); "
                "set TMPDIR to a folder with a short path that allows programs"
            )
            return interpreter_folder()
        # A session of its own: Ctrl-C reaches the forks through their clients, as a signal to any other process does.
        server = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__, str(door.fileno()), str(python), *modules],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True, pass_fds=[door.fileno()],
        )  # fmt: skip
    _started.append(server)
    return folder


@cache
def fork_server_of_jobs() -> Path:
    """Start the fork server of the workflow's jobs, once per process; return the folder of its `python`."""
    return start_fork_server()


class ForkRequest(NamedTuple):
    """Request of a client: module or script with its arguments, working directory, and the cores to which a launcher bound it.

    `files`: descriptors of stdin, stdout and stderr, then of a rank's PMI connection to mpiexec.
    """

    words: list[str]
    folder: str
    cores: set[int]
    environment: dict[str, str]
    files: list[int]

    @classmethod
    def receive(cls, client: socket.socket) -> "ForkRequest":
        """Receive the request that a client sends. Raises EOFError if it has ended, and OSError."""
        size, files, _, _ = socket.recv_fds(client, 8, 4)
        if not size:
            raise EOFError
        with client.makefile("rb") as stream:
            words, folder, cores, environment = marshal.loads(stream.read(int.from_bytes(size, "little")))
        return cls(words, folder, cores, environment, files)


class ForkServer:
    """Forks on request of a client at the door, forwards signals to forks and sends their exit statuses to the clients.

    `owner`: descriptor that becomes readable when the process that started the server has ended.
    """

    def __init__(self, door: socket.socket, owner: int) -> None:
        self._door = door
        # What happens when a descriptor is readable: of the door, the owner, each fork's pidfd and client.
        self._selector = selectors.PollSelector()  # has no descriptor, which forks would share
        self._selector.register(door, selectors.EVENT_READ, self._answer)
        self._selector.register(owner, selectors.EVENT_READ, partial(self._selector.unregister, owner))

    def serve(self) -> ForkRequest | None:
        """Return the request in a fork; return None in the server after its owner and its forks have ended."""
        while len(watched := self._selector.get_map()) > 1:
            for key, _ in self._selector.select():
                # Another event of the same call may have ended the watch of this descriptor.
                if key.fd in watched and isinstance(request := key.data(), ForkRequest):
                    # Here, and not by a later collection, which would close files of the program with the same numbers.
                    self._selector.close()
                    return request
        return None

    def _answer(self) -> ForkRequest | None:
        client = self._door.accept()[0]
        client.settimeout(REQUEST_TIMEOUT_S)
        try:
            request = ForkRequest.receive(client)
            client.sendall(b"\1")
        except (OSError, EOFError):  # the client has ended, or does not wait any longer
            client.close()
            return None
        client.settimeout(None)
        try:
            pid = os.fork()
        except OSError as error:  # a limit on processes or memory; the other forks continue
            pid = -1
            with suppress(OSError):
                text = f"nnlo: error: {request.words[0]}: no process can be started: {error.strerror}\n"
                os.write(request.files[2], text.encode())
                client.sendall(os.EX_OSERR.to_bytes(4, "little", signed=True))
        if not pid:
            return request
        for file in request.files:
            os.close(file)
        if pid < 0:
            client.close()
            return None
        handle = os.pidfd_open(pid)  # readable after the process ends
        self._selector.register(handle, selectors.EVENT_READ, partial(self._end, pid, handle, client))
        self._selector.register(client, selectors.EVENT_READ, partial(self._forward, pid, client))
        return None

    def _forward(self, pid: int, client: socket.socket) -> None:
        """Forward the signals that the client received; kill the fork if its client has ended."""
        numbers = b""
        with suppress(ConnectionError):
            numbers = client.recv(64)
        if not numbers:
            self._selector.unregister(client)
        for number in numbers or [signal.SIGKILL]:
            os.kill(pid, number)  # the system does not reuse the pid before `waitpid`

    def _end(self, pid: int, handle: int, client: socket.socket) -> None:
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        self._selector.unregister(handle)
        os.close(handle)
        if client.fileno() in self._selector.get_map():
            self._selector.unregister(client)
        with suppress(OSError):
            client.sendall(status.to_bytes(4, "little", signed=True))
        client.close()


def _become(request: ForkRequest, python: str) -> None:
    """Give a fork the files, folder, environment and arguments of its client, before its program runs."""
    ctypes.CDLL(None).prctl(PARENT_DEATH_SIGNAL, signal.SIGKILL)  # no other signal would reach the fork then
    for number in STOP_SIGNALS:  # the server ignores them
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    os.chdir(request.folder)
    os.sched_setaffinity(0, request.cores)
    os.environ.clear()
    os.environ.update(request.environment)
    _take_files(request)
    sys.executable, sys.argv = python, list(request.words)
    sys.path[:0] = list(filter(None, request.environment.get("PYTHONPATH", "").split(":")))
    random.seed()
    importlib.import_module("numpy").random.seed()
    if threads := os.environ.get("OMP_NUM_THREADS"):  # read when the libraries were loaded
        importlib.import_module("threadpoolctl").threadpool_limits(int(threads))
        importlib.import_module("torch").set_num_threads(int(threads))


def _take_files(request: ForkRequest) -> None:
    """Duplicate the client's descriptors to the numbers they have in the client, and close all others."""
    high = [fcntl.fcntl(file, fcntl.F_DUPFD, HIGH) for file in request.files]
    os.closerange(3, HIGH)
    mpiexec = [int(os.environ["PMI_FD"])] if "PMI_FD" in os.environ else []
    for file, number in zip(high, [0, 1, 2, *mpiexec], strict=True):
        os.dup2(file, number)
        os.close(file)
    sys.stdin, sys.stdout, sys.stderr = open(0, closefd=False), _writer(1), _writer(2)  # noqa: SIM115


def _writer(number: int) -> object:
    stream = open(number, "w", closefd=False)  # noqa: SIM115
    is_unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    stream.reconfigure(line_buffering=number == 2 or stream.isatty(), write_through=is_unbuffered)
    return stream


def serve(door: socket.socket, folder: Path, modules: Sequence[str]) -> ForkRequest | None:
    """Import the modules and run the fork server; return the request in a fork, None in the server."""
    # Listen before the imports: a client that waits for them starts earlier than one that imports torch itself.
    door.listen(100)
    (folder / "socket.part").rename(folder / "socket")
    for module in modules:
        importlib.import_module(module)
    assert "mpi4py.MPI" not in sys.modules, "MPI would not connect what was forked"
    gc.freeze()  # a collection would write to, and so copy, all memory that the processes share
    with door:
        request = ForkServer(door, sys.stdin.fileno()).serve()
    if request is None:
        shutil.rmtree(folder)
    return request


def run(program: str) -> None:
    """Run a script, or a module as `python -m` does."""
    if program.endswith(".py"):
        runpy.run_path(program, run_name="__main__")
        return
    sys.path.insert(0, "")
    sys.modules.pop(program, None)  # the fork server has already imported the module under this name
    runpy.run_module(program, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    # A scheduler sends them to all processes of a job; the clients forward them to the forks.
    for _number in STOP_SIGNALS:
        signal.signal(_number, signal.SIG_IGN)
    if request := serve(socket.socket(fileno=int(sys.argv[1])), Path(sys.argv[2]).parent, sys.argv[3:]):
        _become(request, sys.argv[2])
        run(request.words[0])
