"""Stands in for `python`: a fork of the fork server runs the program, so that nothing is imported again.

The fork gets the arguments, environment, working directory and open files of this process, which forwards signals to it
and exits with its status. The fork is killed if this process is killed. fork_server.py makes a program of this file by
adding a first and a last line; it is short, and imports only built-in modules, because it starts with each process.
"""

import _signal as signal
import _socket
import marshal
import os
import sys

PACKAGE = "nnlo_lib."  # prefix of the modules that run in forks
IMPORT_TIMEOUT_S = 60.0  # of the server, which imports for seconds; then this process imports by itself


def run_in_fork(address: str, python: str, scripts: str, forwarded: list[int]) -> None:
    """Run the program of the command line in a fork and exit with its status.

    The interpreter `python` replaces this process if the program is no module of PACKAGE and none of the folder `scripts`,
    or if no server answers at the socket `address`. `forwarded`: numbers of the signals that the fork gets.
    """
    words = sys.argv[1:]
    program = words[words[:1] == ["-P"] :]
    is_module = program[:1] == ["-m"] and "".join(program[1:2]).startswith(PACKAGE)
    if not is_module and os.path.dirname("".join(program[:1])) != scripts:
        os.execv(python, [python, *words])
    server = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    server.settimeout(IMPORT_TIMEOUT_S)
    try:
        server.connect(address)
        _send(server, (program[is_module:], os.getcwd(), os.sched_getaffinity(0), dict(os.environ)))
        accepted = server.recv(1)
    except OSError:
        accepted = b""
    # No server, one that has ended, or one that still imports and will fork nothing for a closed connection.
    if not accepted:
        os.execv(python, [python, *words])
    server.settimeout(None)
    for number in forwarded:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, lambda number, _: server.send(bytes([number])))
    # Without a status, the server has ended, and its forks with it.
    status = server.recv(4) or (-signal.SIGKILL).to_bytes(4, "little", signed=True)
    _exit(int.from_bytes(status, "little", signed=True))


def _send(server: _socket.socket, request: tuple[list[str], str, set[int], dict[str, str]]) -> None:
    text = marshal.dumps(request)
    files = [0, 1, 2, *([int(os.environ["PMI_FD"])] if "PMI_FD" in os.environ else [])]  # PMI_FD: to mpiexec
    packed = b"".join(file.to_bytes(4, sys.byteorder) for file in files)
    server.sendmsg([len(text).to_bytes(8, "little")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, packed)])
    server.sendall(text)


def _exit(status: int) -> None:
    """Exit with the status of the fork, or by the same signal."""
    if status < 0:
        if -status != signal.SIGKILL:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)
