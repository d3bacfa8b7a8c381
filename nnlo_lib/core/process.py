"""Identity and state of a process across hosts and pid reuse; its interpreter, pipes and GPUs.

Other processes and hosts read the identity from files. psutil cannot give it: its `create_time` adds the time of the
boot, which shifts with the clock, its identity without that shift is private, and it takes a process that /proc hides
for dead.
"""

import fcntl
import os
import socket
import stat
import struct
import sys
import termios
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from nnlo_lib.core.errors import UserError

STATE_NAMES = {
    "T": "stopped by a signal",
    "t": "stopped by a debugger",
    "D": "blocked in the kernel, for example by a file system that does not answer",
    "R": "computing",
    "S": "sleeping",
}
CHECK_INTERVAL_S = 0.005
# GPUs by torch's numbers; torch may have read CUDA_VISIBLE_DEVICES before the subset is chosen.
GPU_SUBSET = "NNLO_GPUS"


@dataclass(frozen=True)
class ProcessIdentity:
    """A process, identified across hosts and restarts."""

    host: str
    room: str  # pid namespace of the host, in which `pid` is valid
    pid: int
    # start of the process in clock ticks since boot; it distinguishes processes with the same pid
    started: int

    @classmethod
    def current(cls) -> "ProcessIdentity":
        """Return this process."""
        return cls.from_pid(os.getpid())

    @classmethod
    def from_pid(cls, pid: int) -> "ProcessIdentity":
        """Return the process that has this pid on this host now."""
        return cls(socket.gethostname(), _pid_namespace(), pid, _start_ticks(pid))

    @property
    def is_local(self) -> bool:
        """Whether it is on the host and in the pid namespace of the calling process, which can then observe it."""
        return (self.host, self.room) == (socket.gethostname(), _pid_namespace())

    @property
    def is_dead(self) -> bool:
        """Whether it is known to have ended; always False if it is not local."""
        if not self.is_local:
            return False
        ticks = _start_ticks(self.pid)
        is_running = ticks > 0 and ticks == self.started
        return not is_running and (ticks > 0 or not _is_hidden(self.pid))

    @property
    def is_own(self) -> bool:
        """Whether the process that has this pid on this host now belongs to the user of the calling process."""
        try:
            return os.stat(f"/proc/{self.pid}").st_uid == os.geteuid()
        except OSError:
            return False


def process_age() -> float:
    """Return the seconds since the start of this process."""
    ticks = _start_ticks(os.getpid())
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def _pid_namespace() -> str:
    return os.readlink("/proc/self/ns/pid")


def _start_ticks(pid: int) -> int:
    """Return the start of a process in clock ticks since boot; 0 if it does not exist, is a zombie or is hidden."""
    state = ProcessState.of(pid)
    return 0 if state.has_ended else state.started


def _is_hidden(pid: int) -> bool:
    """Return True if the process exists, but /proc hides the processes of its user (mount option hidepid)."""
    if os.access(f"/proc/{pid}/stat", os.R_OK):
        return False
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        return False
    # The process has ended between the two checks, or a later process of this user has the pid.
    return False


@dataclass(frozen=True)
class ProcessState:
    """The state of a process."""

    # letter of the kernel (R: running, S: sleeping, T: stopped, Z: zombie); empty if the process is gone
    letter: str = ""
    parent: int = 0  # pid of the parent process; 0 if the process is gone
    started: int = 0  # start in clock ticks since boot; 0 if the process is gone

    @classmethod
    def of(cls, pid: int) -> "ProcessState":
        """Return the present state of a process; a process that /proc hides counts as gone."""
        try:
            # The program name, field 2, is in parentheses and can contain spaces and parentheses, so the
            # fields are counted from its end: fields[0] is field 3 and fields[19] is field 22.
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        # The second error occurs if the process ends between the opening and the reading of the file.
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            return cls()
        return cls(fields[0], int(fields[1]), int(fields[19]))

    @property
    def has_ended(self) -> bool:
        """Whether the process is gone or a zombie."""
        return self.letter in ("", "X", "Z")

    @property
    def is_stopped(self) -> bool:
        """Whether a signal or a debugger has stopped the process."""
        return self.letter in ("T", "t")

    def __str__(self) -> str:
        return STATE_NAMES.get(self.letter, "")


def interpreter_folder() -> Path:
    """Return the folder of the Python interpreter, for PATH of commands. Raises UserError if PATH cannot contain it."""
    folder = Path(sys.executable).parent
    if os.pathsep in str(folder):
        raise UserError(
            f"{folder}: the folder of the Python environment cannot be in PATH, because its name contains "
            f"'{os.pathsep}'; create the environment in another folder"
        )
    return folder


def wait_until_read(stream: TextIO, timeout_s: float = 2.0) -> None:
    """Flush a stream and wait until its reader has read everything; return at once if the stream is no pipe.

    The reader may stop reading, as mpiexec does at an abort.
    """
    deadline = time.monotonic() + timeout_s
    try:
        stream.flush()
        if not stat.S_ISFIFO(os.fstat(stream.fileno()).st_mode):
            return
        while time.monotonic() < deadline:
            (unread,) = struct.unpack("i", fcntl.ioctl(stream, termios.FIONREAD, bytes(4)))
            if not unread:
                return
            time.sleep(CHECK_INTERVAL_S)
    except (OSError, ValueError):
        return


def visible_gpus() -> list[int]:
    """Return the GPUs that this process may use, by torch's numbers.

    The GPUs in CUDA_VISIBLE_DEVICES are used or, if it is not set, the GPUs that Slurm has allocated, or all. A
    search that runs several trainings in parallel restricts them further with GPU_SUBSET (NNLO_GPUS).
    """
    visible = _allocated_gpus()
    mine = [int(gpu) for gpu in os.environ.get(GPU_SUBSET, "").split(",") if gpu]
    return [gpu for gpu in visible if gpu in mine] if mine else visible


def _allocated_gpus() -> list[int]:
    import torch  # only here: a process that starts CPU trainings does not need it

    # Without NVML, the count may initialize the driver, but it makes no context on a GPU.
    visible, environment = list(range(torch.cuda.device_count())), os.environ
    if "CUDA_VISIBLE_DEVICES" in environment:
        return visible
    allocated = environment.get("SLURM_STEP_GPUS") or environment.get("SLURM_JOB_GPUS") or ""
    named = [int(word) for word in allocated.split(",") if word.isdigit()]
    # Slurm numbers the GPUs of the whole host. If cgroups hide the other GPUs, torch counts the visible ones
    # from 0.
    if named and len(named) < len(visible):
        return [gpu for gpu in named if gpu in visible]
    return visible[: int(environment.get("SLURM_GPUS_ON_NODE") or len(visible))]
