"""Programs `python` and `nnlo` that do not start: a process that has imported everything forks in their place.

Importing costs each process more than a second, and most small trainings little else. Tests whose subject is what
trainings compute use forks; tests of processes (that die, are killed, leave things behind) start real ones.
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

SHARED = ("mpiexec", "hydra_pmi_proxy")  # are looked for beside python


@functools.cache
def programs() -> Path:
    """Return the folder of the programs, of which those of this process's forge; they end with this process."""
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
