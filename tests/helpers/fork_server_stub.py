"""Stub that tests start instead of `python` or `nnlo`: a fork of the fork server runs the program.

The fork gets the arguments, environment, working directory and open files of the stub. The stub forwards signals to the
fork and exits with the status of the fork. The fork is killed if the stub is killed. fork_server.py makes a program of a
copy of this file by adding a first line and last lines.
"""

import _signal as signal
import _socket
import marshal
import os
import sys

FORGED = "nnlo_lib."  # prefix of the modules that run in forks
PASSED = [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP, signal.SIGQUIT]
CHUNK = 65536


def stand(address: str, python: str, module: str = "") -> None:
    """Run `module` in a fork and exit with its status.

    Args:
        address: abstract socket address of the fork server.
        python: interpreter that replaces this process if the arguments do not name a module of FORGED.
        module: module to run; empty: the module after `-m` in the arguments.
    """
    words = sys.argv[1:]
    if not module and (words[:1] != ["-m"] or not words[1].startswith(FORGED)):
        os.execv(python, [python, *words])
    if not module:
        module, words = words[1], words[2:]
    forge = _ask(address, (module, words, os.getcwd(), dict(os.environ)))
    for number in PASSED:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, lambda number, _: forge.send(bytes([number])))
    _end(int.from_bytes(_receive(forge), "little", signed=True))


def _ask(address: str, wanted: object) -> _socket.socket:
    forge = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    forge.connect(f"\0{address}")
    text = marshal.dumps(wanted)
    files = [0, 1, 2, *([int(os.environ["PMI_FD"])] if "PMI_FD" in os.environ else [])]
    packed = b"".join(file.to_bytes(4, sys.byteorder) for file in files)
    forge.sendmsg([len(text).to_bytes(8, "little")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, packed)])
    forge.sendall(text)
    return forge


def _receive(forge: _socket.socket) -> bytes:
    """Wait for the exit status of the fork; return the status of SIGKILL if the fork server has ended."""
    return forge.recv(4) or (-signal.SIGKILL).to_bytes(4, "little", signed=True)


def _end(status: int) -> None:
    """Exit with the status of the fork, or by the same signal."""
    if status < 0:
        if -status != signal.SIGKILL:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)
