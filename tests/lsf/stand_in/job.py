"""Jobs of a stand-in for LSF: each has a folder in $LSF_STANDIN, and processes with its number.

Jobs start at once on this machine; no code of LSF is used. The treatment of jobs follows IBM's manual.
A test itself triggers the events that no LSF user command triggers: elapsed time, suspension by the system,
loss of a host.
"""

import contextlib
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

TICK = 0.02  # interval between checks, in seconds
TERMINATE_INTERVAL_S = 10  # LSF's JOB_TERMINATE_INTERVAL


class Job:
    """Job of the stand-in, identified by its folder; the folder's name is the job number."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.number = folder, folder.name

    @classmethod
    def of(cls, number: str) -> "Job":
        """Return the job with this number."""
        return cls(Path(os.environ["LSF_STANDIN"]) / number)

    @property
    def request(self) -> dict[str, Any]:
        """Options of bsub for this job."""
        return json.loads((self.folder / "request.json").read_text())

    @property
    def state(self) -> str:
        """PEND, RUN, SSUSP (suspended by the system), USUSP (suspended by the owner), DONE or EXIT."""
        return self._read("state")

    @state.setter
    def state(self, state: str) -> None:
        self._write("state", state)

    @property
    def exit_reason(self) -> str:
        """Why LSF or a person ended the last run of the job; an empty string if the job ended by itself."""
        return self._read("exit_reason")

    @exit_reason.setter
    def exit_reason(self, reason: str) -> None:
        self._write("exit_reason", reason)

    @property
    def session(self) -> str:
        """Session of the job's command while it runs, else an empty string."""
        return self._read("session")

    @session.setter
    def session(self, number: str) -> None:
        self._write("session", number)

    @property
    def is_purged(self) -> bool:
        """Whether LSF has forgotten the job, as it does CLEAN_PERIOD seconds after the end."""
        return (self.folder / "purge").exists() and self.state in ("DONE", "EXIT")

    def purge(self) -> None:
        """Let LSF forget the job as soon as the job has ended."""
        (self.folder / "purge").touch()

    @property
    def log(self) -> Path:
        """File with the job's output."""
        return Path(self.request["o"])

    @property
    def minutes_passed(self) -> float:
        """Simulated minutes of run time, added by `pass_minutes`."""
        return float(self._read("minutes") or 0)

    def pass_minutes(self, minutes: float) -> None:
        """Advance the job's clock, which determines its warning and its time limit."""
        self._write("minutes", str(self.minutes_passed + minutes))

    def processes(self) -> list[int]:
        """Return the living processes of the job in all terminals and sessions.

        A process that calls exec has an empty environment for a moment, so the session of the job's command counts, too.
        """
        session = self.session
        return [int(entry.name) for entry in Path("/proc").glob("[0-9]*") if self._has(entry, session)]

    def _has(self, entry: Path, session: str) -> bool:
        try:
            state, _, _, its_session = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
            variables = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            return False
        return state not in "ZX" and (
            its_session == session or f"LSB_JOBID={self.number}".encode() in variables
        )

    def send(self, number: int) -> None:
        """Send a signal to every process of the job."""
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def suspend(self, state: str = "SSUSP") -> None:
        """Stop the job's processes: state SSUSP for a suspension by the system, USUSP for one by the owner."""
        self.state = state
        while any(is_running(pid) for pid in self.processes()):
            self.send(signal.SIGSTOP)
            time.sleep(TICK)

    def resume(self) -> None:
        """Resume the job's processes."""
        self.state = "RUN"  # first: a job that ends at once must not be left in this state
        self.send(signal.SIGCONT)

    def end(self, reason: str) -> None:
        """Kill the job's processes for a reason that bjobs shows; after TERM_REQUEUE_OWNER, the job runs again."""
        self._wait_for_start()
        self.exit_reason = reason
        (self.folder / "is_killed").touch()  # a new run waits, or would be killed too
        self._kill()
        (self.folder / "is_killed").unlink()

    def cancel(self) -> None:
        """Send SIGINT, SIGTERM and SIGKILL, ten seconds apart, until the job ends; a suspended job continues for that."""
        self._wait_for_start()
        self.exit_reason = "TERM_OWNER: job killed by owner"
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            self.send(signal.SIGCONT)
            self.send(number)
            end = time.monotonic() + TERMINATE_INTERVAL_S
            while self.processes() and time.monotonic() < end:
                time.sleep(TICK)

    def lose_host(self) -> None:
        """Simulate the loss of the job's host: kill its processes, then mark the host as dead for LSF."""
        (self.folder / "host_is_dying").touch()
        self._kill()
        (self.folder / "host_is_dying").rename(self.folder / "host_is_dead")

    def _wait_for_start(self) -> None:
        """Wait until a pending job, which has no process yet, runs; it would start after its kill."""
        while self.state == "PEND":
            time.sleep(TICK)

    def _kill(self) -> None:
        while self.processes():
            self.send(signal.SIGKILL)
            time.sleep(TICK)

    def _read(self, name: str) -> str:
        path = self.folder / name
        return path.read_text().strip() if path.exists() else ""

    def _write(self, name: str, text: str) -> None:
        """Write a file atomically, because another process may read it at any time."""
        part = self.folder / f".{name}.{os.getpid()}"
        part.write_text(f"{text}\n")
        part.rename(self.folder / name)


def is_running(pid: int) -> bool:
    """Return True if a process exists and is neither stopped nor a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "TZX"
    except OSError:
        return False
