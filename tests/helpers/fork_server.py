"""Replacements of `python` and `nnlo` that fork from a process that has imported all modules.

Imports take more than a second per process, which is most of the time of a small training. Tests of the results of
trainings use forks; tests of process behavior (crashes, kills, files left behind) start real processes.
"""

import atexit
import functools
import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path

from helpers import fork_server_main, fork_server_stub
from helpers.repository_copy import environment

SHARED = ("mpiexec", "hydra_pmi_proxy")  # programs that the launcher looks for in python's folder


@functools.cache
def programs() -> Path:
    """Start the fork server; return the folder with its `python` and `nnlo`. The folder is removed at exit."""
    folder = Path(tempfile.mkdtemp(prefix="nnlo-forge-"))
    address = f"nnlo-forge-{uuid.uuid4()}"
    _write(folder / "python", address, "")
    _write(folder / "nnlo", address, fork_server_main.COMMAND)
    for name in SHARED:
        (folder / name).symlink_to(Path(sys.executable).with_name(name))
    forge = _start(address, folder / "python")
    atexit.register(_end, forge, folder, os.getpid())
    return folder


def _write(path: Path, address: str, module: str) -> None:
    head, last = f"#!{sys.executable} -ISE\n", f"\nstand({address!r}, {sys.executable!r}, {module!r})\n"
    path.write_text(head + Path(fork_server_stub.__file__).read_text() + last)
    path.chmod(0o755)


def _start(address: str, python: Path) -> "subprocess.Popen[bytes]":
    forge = subprocess.Popen(
        [sys.executable, fork_server_main.__file__, address, str(python)],
        env=environment() | {"OMP_NUM_THREADS": "1"}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert forge.stdout is not None
    assert forge.stdout.read(1) == fork_server_main.READY
    return forge


def _end(forge: "subprocess.Popen[bytes]", folder: Path, owner: int) -> None:
    if os.getpid() == owner:
        forge.communicate()
        shutil.rmtree(folder)
