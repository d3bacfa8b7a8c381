"""What a test starts in the place of python or `nnlo`: it has a fork of the forge do the work, and stands for it.

The fork has this process's words, environment, folder and open files; signals are passed on to it, and as it ends, so
does this. It dies when this is killed. A copy of this file is a program, with the first line and the last ones that
fork_server.py adds.
"""

import _signal as signal
import _socket
import marshal
import os
import sys

FORGED = "nnlo_lib."  # the modules that the forge knows
PASSED = [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP, signal.SIGQUIT]
CHUNK = 65536


def stand(address: str, python: str, module: str = "") -> None:
    """Have `module`, or that which `-m` names, run in a fork; any other program in a python of its own."""
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
    """Wait for how it ended; a forge that is gone has killed it."""
    return forge.recv(4) or (-signal.SIGKILL).to_bytes(4, "little", signed=True)


def _end(status: int) -> None:
    """End as the fork did."""
    if status < 0:
        if -status != signal.SIGKILL:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)
