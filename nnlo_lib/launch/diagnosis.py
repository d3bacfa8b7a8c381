"""Why the ranks of a launch ended: from their files in `state/`, the launcher's output and the OOM count."""

import json
import re
import shutil
import signal
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nnlo_lib.core.errors import CPU_LIMIT_TEXT, EXIT_USER_ERROR, ExitReason
from nnlo_lib.launch.stop_request import TimeLimit
from nnlo_lib.state.attempt_outcome import EXIT_PREEMPTED, AttemptOutcome
from nnlo_lib.state.out_of_memory import OUT_OF_MEMORY_PATTERN
from nnlo_lib.state.training_records import parse_failure
from nnlo_lib.train.freshness import status
from nnlo_lib.train.task import Task

# Schedulers send these shortly before the time limit, and some schedulers at preemption.
WARNING_SIGNALS = ("SIGUSR1", "SIGUSR2", "SIGURG")
TERMINATED_STATUSES = (15, 128 + 15)  # after a SIGTERM that arrived before a rank had installed its handler
LAST_LINES = 20  # lines of the output that the log keeps if no rank recorded an error
# The frame and the sentences that Hydra (MPICH) prints when a rank has died, and the last line of Python's crash
# report, which names dozens of modules.
LAUNCHER_NOISE_PATTERN = re.compile(
    r"^=|^YOUR APPLICATION TERMINATED|^This typically refers|^Please see the FAQ|^Abort\(|^Extension modules: "
)
# `PID ... RUNNING AT` is a message of Hydra, `error: node: task 1: Killed` one of srun, and `process rank 1 with
# PID 7 on node n exited on signal 9` one of Open MPI.
KILLED_RANK_PATTERN = re.compile(
    r"PID (?P<pid>\d+) RUNNING AT (?P<host>\S+)"
    r"|error: (?P<node>\S+): tasks? (?P<task>\d+)[^:]*:(?: Exited with exit code (?P<status>\d+)| (?P<end>.+))?"
)
OPEN_MPI_PATTERN = re.compile(
    r"process rank (?P<task>\d+) with PID \d+ on node (?P<node>\S+) exited on signal (?P<code>\d+)"
)
EXIT_CODE_PATTERN = re.compile(r"EXIT CODE: (?P<code>\d+)")
# Open MPI's `Exit code:` is a status, in contrast to Hydra's.
EXIT_STATUS_PATTERN = re.compile(r"^\s*Exit code:\s+(?P<status>\d+)")
NODE_FAILURE_PATTERN = re.compile(r"^srun: error: Node failure on (?P<failed>\S+)")
# `job 32 step creation temporarily disabled, retrying (Requested nodes are busy)`, later `Step created for job 32`
STEP_PATTERN = re.compile(
    r"^srun: .*(step creation (temporarily|still) disabled, retrying|(?P<created>Step created for ))"
)
PATTERNS = (
    KILLED_RANK_PATTERN, OPEN_MPI_PATTERN, EXIT_CODE_PATTERN, EXIT_STATUS_PATTERN, OUT_OF_MEMORY_PATTERN,
    NODE_FAILURE_PATTERN,
)  # fmt: skip
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
        launcher_status: exit status of mpiexec or srun; negative: number of its signal.
        launcher_facts: facts parsed from the launcher's output, see LauncherOutput.
        forwarded_signal: name of the first stop signal that this process received, or an empty string.
        oom_killed: whether the kernel's OOM killer was active during the launch.
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
        return self.oom_killed or "memory" in self.launcher_facts

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


class LauncherOutput:
    """Facts about lost ranks, parsed from the output line by line.

    Attributes:
        facts: the first value found of each key: `pid` and `host`, or `node` and `task` (rank), of a lost rank; `code`,
            the signal that killed it; `memory` if Slurm reported an out-of-memory kill; `failed`, a failed node.
        failures: failures that ranks printed because they could not write them, by rank.
        waits_for_step: whether srun waits for resources that other steps of the job use.
    """

    def __init__(self) -> None:
        self.last_lines: deque[str] = deque(maxlen=LAST_LINES)
        self.facts: dict[str, str] = {}
        self.failures: dict[str, dict[str, Any]] = {}
        self.waits_for_step = False

    def parse_line(self, line: str) -> bool:
        """Parse one line; return False if it is no text for users: launcher boilerplate, or a printed failure."""
        if failure := parse_failure(line):
            self.failures[str(failure["rank"])] = failure
            return False
        self.last_lines.append(line.rstrip())
        if step := STEP_PATTERN.match(line):
            self.waits_for_step = not step["created"]
        for pattern in PATTERNS:
            if found := pattern.search(line):
                # The first message names the cause; later ones may be about ranks that were then killed.
                self.facts = {key: value for key, value in found.groupdict().items() if value} | self.facts
        return not LAUNCHER_NOISE_PATTERN.search(line)


def diagnose_exit(task: Task, end: ExitFacts) -> AttemptOutcome:
    """Return the outcome of an attempt; its error names the rank that caused a failure, if known."""
    # MPI launchers may kill the ranks that exit later than the first, so notes precede the launcher's status.
    notes = _read_rank_files(task.paths.state.stopped)
    if notes:
        return _stop_outcome(task, end, notes)
    # Rank 0 has published the results, and may have been killed in the evaluation that follows. A status of 0 alone is no
    # evidence: code of the user, or a library, can end a rank with it.
    if task.paths.state.done.exists() or (not end.launcher_status and status(task).kind == "finished"):
        return AttemptOutcome("finished")
    # Before the ranks' failure files: the ranks on other nodes report only that a peer was lost.
    if node := end.launcher_facts.get("failed"):
        return AttemptOutcome("node failure", f"node {node} failed; {RESUME_NOTE}")
    if failures := {**end.failures, **_read_rank_files(task.paths.state.failures)}:
        return _failure_outcome(task, end, failures)
    if end.launcher_status in (EXIT_PREEMPTED, *TERMINATED_STATUSES) or end.forwarded_signal:
        return _stop_outcome(task, end, notes)
    ranks, facts = _read_rank_files(task.paths.state.ranks), end.launcher_facts
    named = (
        [facts["task"]] if "task" in facts else [r for r in ranks if str(ranks[r]["pid"]) == facts.get("pid")]
    )
    # The launcher may name a rank that it killed itself after the first rank had died.
    suspects = [rank for rank in named if rank in end.first_exits] or end.first_exits or named
    return lost_ranks_outcome(_with_places(task, suspects), end)


def _failure_outcome(task: Task, end: ExitFacts, failures: Mapping[str, Mapping[str, Any]]) -> AttemptOutcome:
    """Return the outcome of ranks that reported failures, of which the first is the cause."""
    # A failure that may be the consequence of another rank's is not `certain` and therefore comes last.
    first = min(failures.values(), key=lambda each: (not each["certain"], each["time"]))
    reason: ExitReason = first["reason"]
    if reason == "peer lost":
        # Ranks that ended without a message while others waited for them, or the launcher that was killed.
        seen = {str(rank) for failure in failures.values() for rank in failure["dead"]}
        if dead := _with_places(task, sorted(seen - set(failures))) or (end.launcher_signal > 0) * [
            end.launcher
        ]:
            return lost_ranks_outcome(dead, end)
        # A rank that the OOM killer ends leaves no file; the other ranks see a lost peer.
        reason = "out of memory" if end.is_out_of_memory else reason
    if first["status"] == EXIT_USER_ERROR:
        return AttemptOutcome(reason, first["error"], is_user_error=True, details=first["traceback"])
    advice = "; free space and run the same command again" if reason == "disk full" else ""
    text = f"rank {first['rank']} failed: {first['error']}{advice}"
    return AttemptOutcome(reason, text, details=first["traceback"])


def _stop_outcome(task: Task, end: ExitFacts, notes: dict[str, dict[str, Any]]) -> AttemptOutcome:
    """Return the outcome of stopped ranks: `time limit` or `preempted`.

    The reason is `time limit` if the ranks saved without a signal, after a warning signal near the limit, or at the limit of
    processor time.

    `notes` has the contents of the ranks' files in `stopped/`, by rank; it is empty if no rank has saved.
    """
    names = [note["signal"] for note in notes.values() if note["signal"]]
    stopped_by = (
        end.forwarded_signal
        or next((each for each in names if each not in WARNING_SIGNALS), "")
        or "".join(names[:1])
    )
    saved = bool(notes) or end.launcher_status == EXIT_PREEMPTED
    is_cpu_limit = stopped_by == "SIGXCPU"
    is_warned = is_cpu_limit or (stopped_by in WARNING_SIGNALS and end.time_limit.is_in_warning_window)
    late = saved and (not stopped_by or is_warned)
    how = f"{CPU_LIMIT_TEXT}; " * is_cpu_limit + ("stopped and saved" if saved else "stopped without saving")
    text = f"{task.folder}: {how}; run the same command again to resume"
    return AttemptOutcome("time limit" if late else "preempted", text, stopped_by)


def lost_ranks_outcome(ranks: Sequence[str], end: ExitFacts) -> AttemptOutcome:
    """Return the outcome of ranks that ended without a message: killed, crashed, or exited.

    `ranks` names those that ended first, with process and host; it is empty if they are unknown.
    """
    first, number, exit_status = ", ".join(ranks), end.rank_signal, None
    if not (number or end.launcher_signal):
        exit_status = int(end.launcher_facts.get("status", end.launcher_status))
    reason: ExitReason = "killed"
    if end.is_out_of_memory:
        reason, what = "out of memory", _killed(ranks, end, "not enough memory")
    elif end.lost_parent:
        what = f"{end.lost_parent} ended before them, and all ranks were stopped (cause: {UNKNOWN_KILLER})"
    elif end.launcher_signal:
        what = _killed([end.launcher], end)
    elif number in CRASH_CAUSES:
        space = f"; {shared_memory_text()}" if number == signal.SIGBUS else ""
        reason, what = "crashed", (
            f"{first or 'a rank'} crashed with {signal.Signals(number).name} ({CRASH_CAUSES[signal.Signals(number)]}{space}), "
            "and all ranks were stopped; state/log.txt has the last output"
        )  # fmt: skip
    elif exit_status is not None and ranks:
        reason, what = "crashed", (
            f"{first} exited with status {exit_status} before the end of the training and without an exception "
            "(code called os._exit(), or a library ended the process), and all ranks were stopped"
        )  # fmt: skip
    elif number or ranks:
        what = _killed(ranks, end)
    else:
        seen = "see its output above" if end.last_lines else "it printed nothing"
        text = f"the launcher exited with status {end.launcher_status}, and no rank recorded an error; {seen}"
        return AttemptOutcome(reason, text, details=end.last_lines)
    return AttemptOutcome(reason, f"{what}; {RESUME_NOTE}", details=end.last_lines)


def _killed(ranks: Sequence[str], end: ExitFacts, cause: str = UNKNOWN_KILLER) -> str:
    number = end.launcher_signal or end.rank_signal
    how = signal.Signals(number).name if number in signal.valid_signals() else "a signal"
    were = "were" if len(ranks) > 1 else "was"
    return (
        f"{', '.join(ranks) or 'a rank'} {were} killed by {how}, and all ranks were stopped (cause: {cause})"
    )


def _with_places(task: Task, ranks: Sequence[str]) -> list[str]:
    known = _read_rank_files(task.paths.state.ranks)
    places = {rank: f" (process {file['pid']} on {file['host']})" for rank, file in known.items()}
    return [f"rank {rank}{places.get(rank, '')}" for rank in ranks]


def _read_rank_files(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the JSON files that ranks wrote to a folder, by rank."""
    return {path.name: json.loads(path.read_text()) for path in sorted(folder.glob("[0-9]*"))}


def shared_memory_text() -> str:
    """Return size and free space of the shared memory of this host."""
    try:
        size, _, free = shutil.disk_usage(SHARED_MEMORY_FOLDER)
    except OSError:
        return f"{SHARED_MEMORY_FOLDER} is missing"
    return f"{SHARED_MEMORY_FOLDER} has {size / 2**20:.0f} MiB, {free / 2**20:.0f} MiB of them free; MPI needs a few per rank"
