"""Facts about the end of a launch, and the outcome of ranks that ended without a message: killed, crashed, or exited."""

import shutil
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nnlo_lib.core.errors import ExitReason
from nnlo_lib.launch.stop_request import TimeLimit
from nnlo_lib.state.attempt_outcome import AttemptOutcome
from nnlo_lib.state.out_of_memory import is_launch_out_of_memory

SHARED_MEMORY_FOLDER = Path("/dev/shm")
RESUME_NOTE = "run the same command again to resume from the last checkpoint"
UNKNOWN_KILLER = "probably the scheduler or a user"
# srun prints the description of the signal, as strsignal(3) does.
SIGNALS_BY_DESCRIPTION = {signal.strsignal(number): number for number in signal.valid_signals()}
# Signals that the kernel or the C library sends to a process for an error in compiled code.
CRASH_CAUSES = {
    signal.SIGSEGV: "compiled code used an invalid address",
    signal.SIGBUS: "a file that is mapped into memory has no space, or was cut",
    signal.SIGABRT: "compiled code called abort()",
    signal.SIGFPE: "compiled code divided by zero",
    signal.SIGILL: "compiled code has an instruction that this processor does not know",
    signal.SIGTRAP: "compiled code ran into a trap",
    signal.SIGSYS: "compiled code made a system call that is not allowed",
}


@dataclass(frozen=True)
class ExitFacts:
    """Facts about the end of a launch.

    Attributes:
        launcher_status: exit status of the launcher process (mpiexec, srun); negative: number of its signal.
        launcher_facts: facts parsed from the launcher's output, see LauncherOutput.
        first_exits: ranks that exited first.
        forwarded_signal: name of the first stop signal that this process received, or an empty string.
        oom_killed: whether the kernel's OOM killer was active during the launch.
        time_limit: time limit of the batch job.
        last_lines: last lines that the launcher and the ranks wrote.
        launcher: program and process of the launcher; empty if the only rank was started without one.
        lost_parent: process that had started ranks of this host and ended before them; empty if there is none.
        failures: failures that ranks printed because they could not write them, by rank.
    """

    launcher_status: int
    launcher_facts: Mapping[str, str]
    first_exits: list[str]
    forwarded_signal: str
    oom_killed: bool
    time_limit: TimeLimit
    last_lines: str = ""
    launcher: str = ""
    lost_parent: str = ""
    failures: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def is_out_of_memory(self) -> bool:
        """Whether the kernel or Slurm reported that a process was killed for its memory."""
        return is_launch_out_of_memory(self.oom_killed, self.launcher_facts)

    @property
    def launcher_signal(self) -> int:
        """Number of the signal that ended the launcher; 0 if it exited, or if there is none."""
        return -self.launcher_status if self.launcher and self.launcher_status < 0 else 0

    @property
    def rank_signal(self) -> int:
        """Number of the signal that ended the first rank, as far as the launcher reports it; else 0."""
        if "code" in self.launcher_facts:
            return int(self.launcher_facts["code"])
        if not self.launcher and self.launcher_status < 0:
            return -self.launcher_status
        words = self.launcher_facts.get("end", "").partition(" (")[0]
        return SIGNALS_BY_DESCRIPTION.get(words, 0)

    @property
    def rank_status(self) -> int | None:
        """Exit status of the first rank; None if a signal ended it."""
        if self.rank_signal or self.launcher_signal:
            return None
        return int(self.launcher_facts.get("status", self.launcher_status))


def lost_ranks_outcome(ranks: Sequence[str], end: ExitFacts) -> AttemptOutcome:
    """Return the outcome of ranks that ended without a message.

    `ranks` names those that ended first, with process and host; it is empty if they are unknown.
    """
    reason, text = _reason_and_text(ranks, end)
    return AttemptOutcome(reason, text, details=end.last_lines)


def _reason_and_text(ranks: Sequence[str], end: ExitFacts) -> tuple[ExitReason, str]:
    if end.is_out_of_memory:
        return "out of memory", _killed(ranks or ["a rank"], end, "not enough memory")
    if end.lost_parent:
        text = f"{end.lost_parent} ended before them, and all ranks were stopped (cause: {UNKNOWN_KILLER})"
        return "killed", f"{text}; {RESUME_NOTE}"
    if end.launcher_signal:
        return "killed", _killed([end.launcher], end)
    if end.rank_signal in CRASH_CAUSES:
        return "crashed", _crashed(ranks or ["a rank"], signal.Signals(end.rank_signal))
    if end.rank_status is not None and ranks:
        return "crashed", _exited(ranks, end.rank_status)
    if end.rank_signal or ranks:
        return "killed", _killed(ranks or ["a rank"], end)
    seen = "see its output above" if end.last_lines else "it printed nothing"
    text = f"the launcher exited with status {end.launcher_status}, and no rank recorded an error"
    return "killed", f"{text}; {seen}"


def _killed(ranks: Sequence[str], end: ExitFacts, cause: str = UNKNOWN_KILLER) -> str:
    number = end.launcher_signal or end.rank_signal
    how = signal.Signals(number).name if number in signal.valid_signals() else "a signal"
    were = "was" if len(ranks) == 1 else "were"
    return f"{', '.join(ranks)} {were} killed by {how}, and all ranks were stopped (cause: {cause}); {RESUME_NOTE}"


def _crashed(ranks: Sequence[str], number: signal.Signals) -> str:
    space = f"; {shared_memory_text()}" if number == signal.SIGBUS else ""
    return (
        f"{', '.join(ranks)} crashed with {number.name} ({CRASH_CAUSES[number]}{space}), and all ranks were stopped; "
        f"state/log.txt has the last output; {RESUME_NOTE}"
    )


def _exited(ranks: Sequence[str], status: int) -> str:
    return (
        f"{', '.join(ranks)} exited with status {status} before the end of the training and without an exception "
        "(code called os._exit(), or a library ended the process), and all ranks were stopped; "
        f"{RESUME_NOTE}"
    )


def shared_memory_text() -> str:
    """Return size and free space of the shared memory of this host."""
    try:
        size, _, free = shutil.disk_usage(SHARED_MEMORY_FOLDER)
    except OSError:
        return f"{SHARED_MEMORY_FOLDER} is missing"
    return f"{SHARED_MEMORY_FOLDER} has {size / 2**20:.0f} MiB, {free / 2**20:.0f} MiB of them free; MPI needs a few per rank"
