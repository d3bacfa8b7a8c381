"""A process of some host, known again although its number may have become another's."""

import os
import socket
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ProcessIdentity:
    """host, room: where its number means something (a room is a namespace of numbers); started: in ticks since boot."""

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
        """Return the process that has a number here now."""
        return cls(socket.gethostname(), _pid_namespace(), pid, _start_ticks(pid))

    @property
    def is_local(self) -> bool:
        """Whether it can be seen from here."""
        return (self.host, self.room) == (socket.gethostname(), _pid_namespace())

    @property
    def is_dead(self) -> bool:
        """Whether it is known to have ended."""
        return self.is_local and _start_ticks(self.pid) != self.started


def _pid_namespace() -> str:
    return os.readlink("/proc/self/ns/pid")


def _start_ticks(pid: int) -> int:
    """Return when a process began, 0 if there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return 0 if fields[0] in "ZX" else int(fields[19])
