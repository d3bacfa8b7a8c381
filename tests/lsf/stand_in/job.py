"""Jobs of a stand-in for LSF: for each a folder in $LSF_STANDIN, and the processes that have its number.

A stand-in: jobs start at once on this machine, and nothing of LSF's own code is here. What happens to a job is
what IBM's manual says. A test brings about itself what no command of LSF's users does: time passes, the system
suspends a job, a host dies.
"""

import contextlib
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

TICK = 0.02  # seconds


class Job:
    """A job by its folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.number = folder, folder.name

    @classmethod
    def of(cls, number: str) -> "Job":
        """Return the job of this number."""
        return cls(Path(os.environ["LSF_STANDIN"]) / number)

    @property
    def request(self) -> dict[str, Any]:
        """What bsub was asked for."""
        return json.loads((self.folder / "request.json").read_text())

    @property
    def state(self) -> str:
        """PEND, RUN, SSUSP (by the system), USUSP (by the owner), DONE or EXIT."""
        return (self.folder / "state").read_text().strip()

    @state.setter
    def state(self, state: str) -> None:
        self._write("state", state)

    @property
    def log(self) -> Path:
        """The file that has the job's words."""
        return Path(self.request["o"])

    @property
    def minutes_passed(self) -> float:
        """Minutes of run time that passed without being waited for."""
        path = self.folder / "minutes"
        return float(path.read_text()) if path.exists() else 0.0

    def pass_minutes(self, minutes: float) -> None:
        """Let the job's clock, by which it is warned and ended, run ahead."""
        self._write("minutes", str(self.minutes_passed + minutes))

    def processes(self) -> list[int]:
        """Return the living processes of the job, on whatever terminal or session."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if f"LSB_JOBID={self.number}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
        return found

    def send(self, number: int) -> None:
        """Send a signal to every process of the job."""
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def suspend(self, state: str = "SSUSP") -> None:
        """Stop the job's processes; LSF calls it SSUSP if the system wanted it, USUSP if the owner."""
        self.state = state
        while any(is_running(pid) for pid in self.processes()):
            self.send(signal.SIGSTOP)
            time.sleep(TICK)

    def resume(self) -> None:
        """Let the job's processes go on."""
        self.send(signal.SIGCONT)
        self.state = "RUN"

    def lose_host(self) -> None:
        """Let the job's host die: its processes are gone at once, and LSF sees that the host is."""
        (self.folder / "host_is_dying").touch()
        while self.processes():
            self.send(signal.SIGKILL)
            time.sleep(TICK)
        (self.folder / "host_is_dying").rename(self.folder / "host_is_dead")

    def _write(self, name: str, text: str) -> None:
        """Write a file that another process may read at any time."""
        (self.folder / f"{name}.part").write_text(f"{text}\n")
        (self.folder / f"{name}.part").rename(self.folder / name)


def is_running(pid: int) -> bool:
    """Say whether a process is there and not stopped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "TZX"
    except OSError:
        return False
