"""Why the ranks ended, from what they left in `state/`, their launcher's words and the kernel's count."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nnlo_lib.errors import EXIT_USER_ERROR
from nnlo_lib.launch.limit import Limit
from nnlo_lib.state.outcome import EXIT_PREEMPTED, Outcome
from nnlo_lib.state.reason import Reason
from nnlo_lib.train.task import Task

WARNINGS = (
    "SIGUSR1",
    "SIGUSR2",
    "SIGURG",
)  # what schedulers send when time runs out, and some when they preempt

TERMINATED = (15, 128 + 15)  # by TERM, which came before a rank could hear it


@dataclass(frozen=True)
class End:
    """status: of the launcher; told: by it; first: ranks that ended first; signal: that it was sent, if any."""

    status: int
    told: dict[str, str]
    first: list[str]
    signal: str
    starved: bool
    limit: Limit


def verdict(task: Task, end: End) -> Outcome:
    """Say how an attempt ended, and which rank was to blame."""
    notes = _notes(task.state / "stopped")
    if notes:
        return _stopped(task, end, notes)
    if not end.status:
        return Outcome("finished")
    if node := end.told.get("failed"):
        return Outcome(
            "node failure", f"node {node} failed; the same command goes on from the last checkpoint"
        )
    failures = _notes(task.state / "failures")
    if failures:
        return _failed(min(failures.values(), key=lambda each: (not each["certain"], each["time"])), end)
    if end.status in (EXIT_PREEMPTED, *TERMINATED) or end.signal:
        return _stopped(task, end, notes)
    return _killed(task, end)


def _failed(first: dict[str, Any], end: End) -> Outcome:
    reason: Reason = "out of memory" if first["reason"] == "peer lost" and end.starved else first["reason"]
    if first["status"] == EXIT_USER_ERROR:
        return Outcome(reason, first["error"], usage=True)
    return Outcome(reason, f"rank {first['rank']} failed: {first['error']}")


def _stopped(task: Task, end: End, notes: dict[str, dict[str, Any]]) -> Outcome:
    """A signal that came when time was running out anyway was the warning of that."""
    heard = [note["signal"] for note in notes.values() if note["signal"]]
    signal = end.signal or next((each for each in heard if each not in WARNINGS), "") or "".join(heard[:1])
    saved = bool(notes) or end.status == EXIT_PREEMPTED
    late = saved and (not signal or (signal in WARNINGS and end.limit.may_have_warned))
    how = "stopped and saved" if saved else "stopped before there was anything to save"
    text = f"{task.folder}: {how}; the same command goes on from there"
    return Outcome("time limit" if late else "preempted", text, signal)


def _killed(task: Task, end: End) -> Outcome:
    reason: Reason = "out of memory" if end.starved or "memory" in end.told else "killed"
    suspects = _suspects(task, end)
    if not suspects:
        return Outcome(
            reason, f"the launcher ended with status {end.status}, and no rank said why; see above"
        )
    how = f"signal {end.told['code']}" if "code" in end.told else "a signal"
    why = "There was not enough memory" if reason == "out of memory" else "A scheduler or a person did it"
    verb = "was" if len(suspects) == 1 else "were"
    return Outcome(
        reason,
        f"{', '.join(suspects)} {verb} killed by {how}; all other ranks were ended. {why}; the same command goes "
        "on from the last checkpoint",
    )


def _suspects(task: Task, end: End) -> list[str]:
    ranks, told = _notes(task.state / "ranks"), end.told
    named = (
        [told["task"]] if "task" in told else [r for r in ranks if str(ranks[r]["pid"]) == told.get("pid")]
    )
    suspects = [rank for rank in named if rank in end.first] or end.first or named
    return [f"rank {rank}{_address(ranks.get(rank))}" for rank in suspects]


def _address(where: dict[str, Any] | None) -> str:
    return f" (process {where['pid']} on {where['host']})" if where else ""


def _notes(folder: Path) -> dict[str, dict[str, Any]]:
    """Return what ranks have left in a folder, by rank."""
    return {path.name: json.loads(path.read_text()) for path in sorted(folder.glob("[0-9]*"))}
