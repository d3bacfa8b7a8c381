"""Diagnosis of a launch from the ranks' files in `state/`, the launcher's output and the OOM count."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nnlo_lib.core.errors import EXIT_USER_ERROR
from nnlo_lib.core.exit_reason import ExitReason
from nnlo_lib.launch.time_limit import TimeLimit
from nnlo_lib.state.outcome import EXIT_PREEMPTED, AttemptOutcome
from nnlo_lib.train.task import Task

# Schedulers send these shortly before the time limit, and some schedulers at preemption.
WARNING_SIGNALS = ("SIGUSR1", "SIGUSR2", "SIGURG")
TERMINATED_STATUSES = (15, 128 + 15)  # after a SIGTERM that arrived before a rank had installed its handler


@dataclass(frozen=True)
class ExitFacts:
    """Facts about the end of a launch.

    Attributes:
        launcher_status: exit status of the launcher process (mpiexec, srun).
        launcher_facts: facts parsed from the launcher's output, see LauncherOutput.
        first_exits: ranks that exited first.
        forwarded_signal: name of the first stop signal that this process received, or an empty string.
        oom_killed: whether the kernel's OOM killer was active during the launch.
        time_limit: time limit of the batch job.
        last_lines: last lines that the launcher and the ranks wrote.
    """

    launcher_status: int
    launcher_facts: dict[str, str]
    first_exits: list[str]
    forwarded_signal: str
    oom_killed: bool
    time_limit: TimeLimit
    last_lines: str = ""


def diagnose_exit(task: Task, end: ExitFacts) -> AttemptOutcome:
    """Return the outcome of an attempt; its error names the rank that caused a failure, if known."""
    # MPI launchers may kill the ranks that exit later than the first, so notes precede the launcher's status.
    notes = _read_rank_files(task.paths.state.stopped)
    if notes:
        return _stop_outcome(task, end, notes)
    if not end.launcher_status:
        return AttemptOutcome("finished")
    # Before the ranks' failure files: the ranks on other nodes report only that a peer was lost.
    if node := end.launcher_facts.get("failed"):
        return AttemptOutcome(
            "node failure",
            f"node {node} failed; run the same command again to resume from the last checkpoint",
        )
    failures = _read_rank_files(task.paths.state.failures)
    if failures:
        # A failure that may be the consequence of another rank's is not `certain` and therefore comes last.
        return _failure_outcome(
            min(failures.values(), key=lambda each: (not each["certain"], each["time"])), end
        )
    if end.launcher_status in (EXIT_PREEMPTED, *TERMINATED_STATUSES) or end.forwarded_signal:
        return _stop_outcome(task, end, notes)
    return _kill_outcome(task, end)


def _failure_outcome(first: dict[str, Any], end: ExitFacts) -> AttemptOutcome:
    # A rank that the OOM killer ends leaves no file; the other ranks see a lost peer.
    reason: ExitReason = (
        "out of memory" if first["reason"] == "peer lost" and end.oom_killed else first["reason"]
    )
    if first["status"] == EXIT_USER_ERROR:
        return AttemptOutcome(reason, first["error"], is_user_error=True, details=first["traceback"])
    return AttemptOutcome(
        reason, f"rank {first['rank']} failed: {first['error']}", details=first["traceback"]
    )


def _stop_outcome(task: Task, end: ExitFacts, notes: dict[str, dict[str, Any]]) -> AttemptOutcome:
    """Return the outcome of stopped ranks: `time limit` or `preempted`.

    The reason is `time limit` if the ranks saved without a signal, or after a warning signal near the limit.

    Args:
        task: the task.
        end: facts about the end of the launch.
        notes: contents of the ranks' files in `stopped/`, by rank; empty if no rank has saved.
    """
    names = [note["signal"] for note in notes.values() if note["signal"]]
    signal = (
        end.forwarded_signal
        or next((each for each in names if each not in WARNING_SIGNALS), "")
        or "".join(names[:1])
    )
    saved = bool(notes) or end.launcher_status == EXIT_PREEMPTED
    late = saved and (not signal or (signal in WARNING_SIGNALS and end.time_limit.is_in_warning_window))
    how = "stopped and saved" if saved else "stopped without saving"
    text = f"{task.folder}: {how}; run the same command again to resume"
    return AttemptOutcome("time limit" if late else "preempted", text, signal)


def _kill_outcome(task: Task, end: ExitFacts) -> AttemptOutcome:
    reason: ExitReason = "out of memory" if end.oom_killed or "memory" in end.launcher_facts else "killed"
    suspects = _suspect_ranks(task, end)
    if not suspects:
        text = f"the launcher exited with status {end.launcher_status}, and no rank recorded an error"
        return AttemptOutcome(reason, f"{text}; see its output above", details=end.last_lines)
    how = f"signal {end.launcher_facts['code']}" if "code" in end.launcher_facts else "a signal"
    cause = "not enough memory" if reason == "out of memory" else "probably the scheduler or a user"
    verb = "was" if len(suspects) == 1 else "were"
    return AttemptOutcome(
        reason,
        f"{', '.join(suspects)} {verb} killed by {how}, and the other ranks were stopped (cause: {cause}); run the same "
        "command again to resume from the last checkpoint",
        details=end.last_lines,
    )


def _suspect_ranks(task: Task, end: ExitFacts) -> list[str]:
    ranks, facts = _read_rank_files(task.paths.state.ranks), end.launcher_facts
    named = (
        [facts["task"]] if "task" in facts else [r for r in ranks if str(ranks[r]["pid"]) == facts.get("pid")]
    )
    # The launcher may name a rank that it killed itself after the first rank had died.
    suspects = [rank for rank in named if rank in end.first_exits] or end.first_exits or named
    return [f"rank {rank}{_address(ranks.get(rank))}" for rank in suspects]


def _address(where: dict[str, Any] | None) -> str:
    return f" (process {where['pid']} on {where['host']})" if where else ""


def _read_rank_files(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the JSON files that ranks wrote to a folder, by rank."""
    return {path.name: json.loads(path.read_text()) for path in sorted(folder.glob("[0-9]*"))}
