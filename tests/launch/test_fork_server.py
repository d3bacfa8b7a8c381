"""A program of the fork server behaves as one of the interpreter: arguments, files, signals, status, and nothing left behind."""

import marshal
import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from unittest import mock

import psutil
import pytest
from helpers.repository_copy import environment
from helpers.training_process import started, training, wait

from nnlo_lib.experiment.load import experiment_from_settings
from nnlo_lib.launch import fork_server
from nnlo_lib.launch.fork_server import ForkServer, can_fork, start_fork_server

pytestmark = pytest.mark.processes
SCRIPT = """
import os, signal, sys

def stop(number, _):
    print("signal", number, flush=True)
    sys.exit(7)

signal.signal(signal.SIGTERM, stop)
if "cores" in sys.argv:
    print(*os.sched_getaffinity(0))
    sys.exit(0)
print("imported" if "colorsys" in sys.modules else "not imported", os.getppid(), os.getcwd(), os.environ["MARK"], *sys.argv[1:], flush=True)
print(sys.stdin.readline(), file=sys.stderr, flush=True)
if "wait" in sys.argv:
    signal.pause()
sys.exit(3)
"""


@pytest.fixture
def program(tmp_path):
    """Return the `python` of a server that has imported colorsys, and a script that it runs in forks."""
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    folder = start_fork_server(["colorsys"], tmp_path)
    wait("the socket", lambda: (folder / "socket").exists())
    return [str(folder / "python"), str(script)]


def start(program, *words, **options):
    settings = {"env": environment() | {"MARK": "x y"}, "text": True}
    return subprocess.Popen([*program, *words], stdin=-1, stdout=-1, stderr=-1, **settings | options)


def waiting(program):
    """Start the script, which waits for a signal."""
    process = start(program, "wait")
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.stderr.readline() == "\n"
    return process


def test_a_fork_has_arguments_files_folder_environment_and_status_of_its_client(program, tmp_path):
    process = start(program, "a b", "'c'", cwd=tmp_path)
    said, errors = process.communicate("a line\n")
    kind, _, rest = said.split(" ", 2)
    assert stat.S_IMODE(os.stat(os.path.dirname(program[0])).st_mode) == 0o700, "no other user can connect"
    assert (kind, rest) == ("imported", f"{tmp_path} x y a b 'c'\n")
    assert (errors, process.returncode) == ("a line\n\n", 3)


def test_a_fork_has_the_cores_to_which_a_launcher_bound_its_client(program):
    core = max(os.sched_getaffinity(0))
    process = start(["taskset", "-c", str(core), *program], "cores")
    assert process.communicate() == (f"{core}\n", "")


@pytest.fixture
def connected():
    """Return a server, and the socket of a client that has connected to it."""
    door, client = socket.socketpair()
    return ForkServer(mock.Mock(accept=lambda: (door, None), fileno=lambda: 1000), 1001), client


def test_a_client_that_is_stopped_before_its_request_does_not_hold_the_server(monkeypatch, connected):
    monkeypatch.setattr(fork_server, "REQUEST_TIMEOUT_S", 0.01)
    server, client = connected
    client.sendall(b"\x09")  # the beginning of a request
    assert server._answer() is None
    assert client.recv(1) == b""


def test_a_client_reports_that_no_process_can_be_started(connected, tmp_path):
    """`ulimit -u` of a login node is reached; trainings that run are not concerned."""
    server, client = connected
    with (
        (tmp_path / "stderr").open("wb") as errors,
        mock.patch.object(fork_server.os, "fork", side_effect=OSError(11, "no more")),
    ):
        text = marshal.dumps((["train.py"], "/", {0}, {}))
        socket.send_fds(client, [len(text).to_bytes(8, "little")], [errors.fileno()] * 3)
        client.sendall(text)
        assert server._answer() is None
    assert client.recv(8) == b"\1" + os.EX_OSERR.to_bytes(4, "little")
    assert (tmp_path / "stderr").read_text() == "nnlo: error: train.py: no process can be started: no more\n"


@pytest.mark.parametrize("fault", ["long path", "no folder", "space in the interpreter's path"])
def test_without_a_folder_for_it_jobs_run_in_the_interpreter(fault, tmp_path, monkeypatch, caplog):
    """TMPDIR of a batch job, a full or read-only /tmp, and one without permission to execute."""
    folder = tmp_path / ("x" * 100 if fault == "long path" else "x")
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder / "none" if fault == "no folder" else folder))
    if fault.startswith("space"):
        (tmp_path / "my env").symlink_to(Path(sys.executable).parent)
        monkeypatch.setattr(sys, "executable", str(tmp_path / "my env/python"))
    monkeypatch.setattr(fork_server, "_started", [])
    assert start_fork_server(["colorsys"], tmp_path) == Path(sys.executable).parent
    assert "set TMPDIR to a folder" in caplog.text
    assert (fork_server._started, list(folder.iterdir())) == ([], [])


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 7), (signal.SIGUSR1, -signal.SIGUSR1)])
def test_signals_reach_the_fork_and_its_end_is_the_clients(program, number, status):
    process = waiting(program)
    assert process.stdout.readline().startswith("imported")
    process.send_signal(number)
    said, _ = process.communicate()
    assert (said, process.returncode) == (f"signal {number:d}\n" if status > 0 else "", status)


def test_a_killed_client_takes_its_fork_along(program):
    process = start(program, "wait")
    server = psutil.Process(int(process.stdout.readline().split()[1]))
    [fork] = server.children()
    process.kill()
    wait("the end of the fork", lambda: not fork.is_running() or fork.status() == psutil.STATUS_ZOMBIE)


def test_without_a_server_the_program_runs_in_the_interpreter(program):
    process = start(program)
    server = psutil.Process(int(process.stdout.readline().split()[1]))
    server.kill()
    process.communicate("\n")
    assert process.returncode == -signal.SIGKILL, "the fork ended with its server"
    said, _ = (process := start(program, "alone")).communicate("\n")
    assert said.startswith("not imported")
    assert process.returncode == 3


@pytest.mark.parametrize(("dies", "start_of_output"), [(False, "imported"), (True, "not imported")])
def test_a_client_waits_for_the_imports_of_the_server(dies, start_of_output, tmp_path, monkeypatch):
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "held.py").write_text(f"open({str(tmp_path / 'pipe')!r}).read()")
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    folder = start_fork_server(["held", "colorsys"], tmp_path)
    with (tmp_path / "pipe").open("w"):  # opens when the server has begun to import
        process = start([str(folder / "python"), str(tmp_path / "script.py")])
        if dies:
            fork_server._started[-1].kill()
    said, _ = process.communicate("\n")
    assert said.startswith(start_of_output)
    assert process.returncode == 3


def test_the_server_outlives_its_owner_until_the_last_fork_has_ended(tmp_path):
    """The owner is killed, as Snakemake by an administrator; its training continues, as it does without forks."""
    (tmp_path / "script.py").write_text(SCRIPT)
    code = (
        "import time; from pathlib import Path; from nnlo_lib.launch.fork_server import start_fork_server\n"
        f"print(start_fork_server(['colorsys'], Path({str(tmp_path)!r})), flush=True); time.sleep(900)"
    )
    owner = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    folder = owner.stdout.readline().strip()
    wait("the socket", lambda: os.path.exists(f"{folder}/socket"))
    process = waiting([f"{folder}/python", str(tmp_path / "script.py")])
    server = psutil.Process(int(process.stdout.readline().split()[1]))
    owner.kill()
    owner.wait()
    process.terminate()
    assert process.wait() == 7
    wait("the end of the server", lambda: not server.is_running() and not os.path.exists(folder))


@pytest.mark.exhaustive
def test_a_forked_training_has_the_bits_of_one_in_interpreters(tmp_path):
    settings = {"model": {"name": "simplecnn"}, "train": {"epochs": 2}}
    runs = [
        make(tmp_path / name, **settings) for name, make in (("forks", training), ("interpreters", started))
    ]
    wait("the socket", lambda: os.path.exists(os.path.join(os.path.dirname(runs[0].command[0]), "socket")))
    for run in runs:
        run.finish()
    assert runs[0].weights == runs[1].weights
    assert runs[0].history == runs[1].history


def test_jobs_with_gpus_or_in_a_container_do_not_fork(monkeypatch):
    def allowed(**settings):
        return can_fork(experiment_from_settings({"name": "t", **settings}))

    assert allowed(parallel={"ranks": 2})
    assert not allowed(parallel={"gpus_per_rank": 1})
    assert not allowed(resources={"container": "apptainer exec nnlo.sif"})
    monkeypatch.setenv("NNLO_NO_FORK", "1")
    assert not allowed(parallel={"ranks": 2})
