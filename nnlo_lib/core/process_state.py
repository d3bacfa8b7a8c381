"""The state of a process of this host, from proc(5)."""

from dataclasses import dataclass
from pathlib import Path

STATE_NAMES = {
    "T": "stopped by a signal",
    "t": "stopped by a debugger",
    "D": "blocked in the kernel, for example by a file system that does not answer",
    "R": "computing",
    "S": "sleeping",
}


@dataclass(frozen=True)
class ProcessState:
    """The state of a process.

    Attributes:
        letter: letter of the kernel (R: running, S: sleeping, T: stopped, Z: zombie); empty if the process is gone.
        parent: pid of the parent process; 0 if the process is gone.
        started: start in clock ticks since boot; 0 if the process is gone.
    """

    letter: str = ""
    parent: int = 0
    started: int = 0

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
