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
# Messages about lost ranks. The groups are facts: `pid` or `task` (rank) of a lost rank; `code`, the number of the signal that
# killed it, or `end`, its description; `status`, its exit status; `memory`: killed for its memory; `failed`: a failed node.
LOST_RANK_PATTERNS = [
    OUT_OF_MEMORY_PATTERN,
    *map(
        re.compile,
        (
            r"PID (?P<pid>\d+) RUNNING AT ",  # Hydra
            r"EXIT CODE: (?P<code>\d+)",
            r"error: \S+: tasks? (?P<task>\d+)[^:]*:(?: Exited with exit code (?P<status>\d+)| (?P<end>.+))?",  # srun
            r"^srun: error: Node failure on (?P<failed>\S+)",
            r"process rank (?P<task>\d+) with PID \d+ on node \S+ exited on signal (?P<code>\d+)",  # Open MPI
            r"^\s*Exit code:\s+(?P<status>\d+)",
        ),
    ),
]
# `job 32 step creation temporarily disabled, retrying (Requested nodes are busy)`, later `Step created for job 32`
STEP_PATTERN = re.compile(
    r"^srun: .*(step creation (temporarily|still) disabled, retrying|(?P<created>Step created for ))"
)
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


class LauncherOutput:
    """Facts about lost ranks, parsed from the output line by line.

    Attributes:
        facts: the first value found of each group of LOST_RANK_PATTERNS.
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
        for found in filter(None, (pattern.search(line) for pattern in LOST_RANK_PATTERNS)):
            # The first message names the cause; later ones may be about ranks that were then killed.
            self.facts = {key: value for key, value in found.groupdict().items() if value} | self.facts
        return not LAUNCHER_NOISE_PATTERN.search(line)

    @property
    def text(self) -> str:
        """The last lines, without empty ones."""
        return "\n".join(filter(None, self.last_lines))

    @property
    def summary(self) -> str:
        """Where to see the output."""
        return "see its output above" if self.text else "it printed nothing"


@dataclass(frozen=True)
class ExitFacts:
    """Facts about the end of a launch."""

    launcher_status: int  # exit status of mpiexec or srun; negative: number of its signal
    time_limit: TimeLimit
    forwarded_signal: str = ""  # name of the first stop signal that this process received, or an empty string
    output: LauncherOutput = field(default_factory=LauncherOutput)
    first_exits: Sequence[str] = ()  # ranks that exited first
    oom_killed: bool = False  # whether the kernel's OOM killer was active during the launch
    launcher: str = ""  # program and process of the launcher; empty if the only rank was started without one
    # process that had started ranks of this host and ended before them; empty if there is none
    lost_parent: str = ""

    @property
    def is_out_of_memory(self) -> bool:
        """Whether the kernel or Slurm reported that a process was killed for its memory."""
        return self.oom_killed or "memory" in self.output.facts

    @property
    def launcher_signal(self) -> int:
        """Number of the signal that ended the launcher; 0 if it exited, or if there is none."""
        return -self.launcher_status if self.launcher and self.launcher_status < 0 else 0

    @property
    def rank_signal(self) -> int:
        """Number of the signal that ended the first rank, as far as the launcher reports it; else 0."""
        if "code" in self.output.facts:
            return int(self.output.facts["code"])
        if not self.launcher and self.launcher_status < 0:
            return -self.launcher_status
        return SIGNALS_BY_DESCRIPTION.get(self.output.facts.get("end", "").partition(" (")[0], 0)


def diagnose_exit(task: Task, end: ExitFacts) -> AttemptOutcome:
    """Return the outcome of an attempt; its error names the rank that caused a failure, if known."""
    # MPI launchers may kill the ranks that exit later than the first, so notes precede the launcher's status.
    state, facts = task.paths.state, end.output.facts
    if notes := _read_rank_files(state.stopped):
        return _stop_outcome(task, end, notes)
    # Rank 0 has published the results, and may have been killed in the evaluation that follows. A status of 0 alone is no
    # evidence: code of the user, or a library, can end a rank with it.
    if state.done.exists() or (not end.launcher_status and status(task).kind == "finished"):
        return AttemptOutcome("finished")
    # Before the ranks' failure files: the ranks on other nodes report only that a peer was lost.
    if node := facts.get("failed"):
        return AttemptOutcome("node failure", f"node {node} failed; {RESUME_NOTE}")
    if failures := {**end.output.failures, **_read_rank_files(state.failures)}:
        return _failure_outcome(task, end, failures)
    if end.launcher_status in (EXIT_PREEMPTED, *TERMINATED_STATUSES) or end.forwarded_signal:
        return _stop_outcome(task, end, notes)
    ranks = _read_rank_files(state.ranks)
    named = [rank for rank in ranks if str(ranks[rank]["pid"]) == facts.get("pid")]
    named = [facts["task"]] if "task" in facts else named
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
        launcher = [end.launcher] if end.launcher_signal else []
        if dead := _with_places(task, sorted(seen - set(failures))) or launcher:
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
    # A warning counts only if no rank got another signal.
    names.sort(key=WARNING_SIGNALS.__contains__)
    stopped_by = end.forwarded_signal or "".join(names[:1])
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
    first, number = ", ".join(ranks) or "a rank", end.rank_signal
    reason: ExitReason = "killed"
    if end.is_out_of_memory:
        reason, what = "out of memory", _killed(ranks, number or end.launcher_signal, "not enough memory")
    elif end.lost_parent:
        what = f"{end.lost_parent} ended before them, and all ranks were stopped (cause: {UNKNOWN_KILLER})"
    elif end.launcher_signal:
        what = _killed([end.launcher], end.launcher_signal)
    elif number in CRASH_CAUSES:
        space = f"; {shared_memory_text()}" if number == signal.SIGBUS else ""
        reason, what = "crashed", (
            f"{first} crashed with {signal.Signals(number).name} ({CRASH_CAUSES[signal.Signals(number)]}{space}), "
            "and all ranks were stopped; state/log.txt has the last output"
        )  # fmt: skip
    elif number:
        what = _killed(ranks, number)
    elif ranks:
        reason, what = "crashed", (
            f"{first} exited with status {end.output.facts.get('status', end.launcher_status)} before the end of the training and "
            "without an exception (code called os._exit(), or a library ended the process), and all ranks were stopped"
        )  # fmt: skip
    else:
        text = f"the launcher exited with status {end.launcher_status}, and no rank recorded an error; {end.output.summary}"
        return AttemptOutcome(reason, text, details=end.output.text)
    return AttemptOutcome(reason, f"{what}; {RESUME_NOTE}", details=end.output.text)


def _killed(names: Sequence[str], number: int, cause: str = UNKNOWN_KILLER) -> str:
    how = signal.Signals(number).name if number in signal.valid_signals() else "a signal"
    were = "were" if len(names) > 1 else "was"
    return (
        f"{', '.join(names) or 'a rank'} {were} killed by {how}, and all ranks were stopped (cause: {cause})"
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
