"""Diagnosis of a launch that ended, from the ranks' files in `state/`, the launcher's output and the OOM count."""

import json
import re
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nnlo_lib.core.errors import CPU_LIMIT_TEXT, EXIT_USER_ERROR, ExitReason
from nnlo_lib.launch.lost_ranks import ExitFacts, lost_ranks_outcome
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


class LauncherOutput:
    """Facts about lost ranks, parsed from the output line by line.

    Attributes:
        facts: facts by key; the first value found is kept. Keys: `pid` and `host`, or `node` and `task`
            (rank), of a lost rank; `code`, the signal that killed it; `memory` if Slurm reported an
            out-of-memory kill; `failed`, the name of a failed node.
        last_lines: the last LAST_LINES lines, boilerplate included.
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
        return AttemptOutcome(
            "node failure",
            f"node {node} failed; run the same command again to resume from the last checkpoint",
        )
    failures = {**end.failures, **_read_rank_files(task.paths.state.failures)}
    if failures:
        # A failure that may be the consequence of another rank's is not `certain` and therefore comes last.
        first = min(failures.values(), key=lambda each: (not each["certain"], each["time"]))
        if first["reason"] == "peer lost" and (dead := _dead_ranks(task, end, failures)):
            return lost_ranks_outcome(dead, end)
        return _failure_outcome(first, end)
    if end.launcher_status in (EXIT_PREEMPTED, *TERMINATED_STATUSES) or end.forwarded_signal:
        return _stop_outcome(task, end, notes)
    return lost_ranks_outcome(_suspect_ranks(task, end), end)


def _dead_ranks(task: Task, end: ExitFacts, failures: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the ranks that ended without a message while others waited for them, or the launcher that was killed."""
    seen = {str(rank) for failure in failures.values() for rank in failure["dead"]}
    return _named(task, sorted(seen - set(failures))) or (end.launcher_signal > 0) * [end.launcher]


def _failure_outcome(first: Mapping[str, Any], end: ExitFacts) -> AttemptOutcome:
    # A rank that the OOM killer ends leaves no file; the other ranks see a lost peer.
    reason: ExitReason = (
        "out of memory" if first["reason"] == "peer lost" and end.is_out_of_memory else first["reason"]
    )
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
    signal = (
        end.forwarded_signal
        or next((each for each in names if each not in WARNING_SIGNALS), "")
        or "".join(names[:1])
    )
    saved = bool(notes) or end.launcher_status == EXIT_PREEMPTED
    is_cpu_limit = signal == "SIGXCPU"
    is_warned = is_cpu_limit or (signal in WARNING_SIGNALS and end.time_limit.is_in_warning_window)
    late = saved and (not signal or is_warned)
    how = f"{CPU_LIMIT_TEXT}; " * is_cpu_limit + ("stopped and saved" if saved else "stopped without saving")
    text = f"{task.folder}: {how}; run the same command again to resume"
    return AttemptOutcome("time limit" if late else "preempted", text, signal)


def _suspect_ranks(task: Task, end: ExitFacts) -> list[str]:
    ranks, facts = _read_rank_files(task.paths.state.ranks), end.launcher_facts
    named = (
        [facts["task"]] if "task" in facts else [r for r in ranks if str(ranks[r]["pid"]) == facts.get("pid")]
    )
    # The launcher may name a rank that it killed itself after the first rank had died.
    suspects = [rank for rank in named if rank in end.first_exits] or end.first_exits or named
    return _named(task, suspects)


def _named(task: Task, ranks: Sequence[str]) -> list[str]:
    known = _read_rank_files(task.paths.state.ranks)
    places = {rank: f" (process {file['pid']} on {file['host']})" for rank, file in known.items()}
    return [f"rank {rank}{places.get(rank, '')}" for rank in ranks]


def _read_rank_files(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the JSON files that ranks wrote to a folder, by rank."""
    return {path.name: json.loads(path.read_text()) for path in sorted(folder.glob("[0-9]*"))}
