"""The identity of a process on a host, which a later process with the same pid does not share.

Other processes and hosts read it from files. psutil cannot give it: its `create_time` adds the time of the boot, which
shifts with the clock, its identity without that shift is private, and it takes a process that /proc hides for dead.
"""

import os
import socket
import time
from dataclasses import dataclass

from nnlo_lib.core.process_state import ProcessState


@dataclass(frozen=True)
class ProcessIdentity:
    """A process, identified across hosts and restarts.

    Attributes:
        host: host name.
        room: pid namespace of the host, in which `pid` is valid.
        pid: process id.
        started: start of the process in clock ticks since boot; it distinguishes processes with the same pid.
    """

    host: str
    room: str
    pid: int
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
