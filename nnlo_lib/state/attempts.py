"""The record of a task's attempts: state/attempts.jsonl, one line per ended attempt."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from nnlo_lib.config.paths import StatePaths
from nnlo_lib.core.exit_reason import ExitReason


@dataclass(frozen=True)
class Attempt:
    """One ended attempt.

    Attributes:
        attempt: number of the attempt, from 1.
        started: start time, ISO 8601.
        ended: end time, ISO 8601.
        seconds: duration.
        host: host of the launcher.
        job: id of the batch job, if any.
        reason: reason of the end.
        error: one-line error message, if any.
        start: step from which it started (`from` in the file).
        reached: last step it completed.
        saved: step of the newest checkpoint at its end.
        ranks: number of ranks.
    """

    attempt: int
    started: str
    ended: str
    seconds: float
    host: str
    job: str | None
    reason: ExitReason
    error: str | None
    start: int
    reached: int
    saved: int
    ranks: int


def read_attempts(state: Path) -> list[Attempt]:
    """Return the attempts recorded in `state/`; a line that a crash cut short is skipped."""
    try:
        lines = StatePaths(state).attempts.read_text(errors="replace").splitlines()
    except OSError:
        return []
    return [attempt for line in lines if (attempt := _parse(line))]


def append_attempt(state: Path, attempt: Attempt) -> None:
    """Append an attempt to the record. Raises OSError if it cannot be written."""
    fields = {_KEYS.get(name, name): value for name, value in asdict(attempt).items()}
    path = StatePaths(state).attempts
    # A crash may have cut the last line short; a newline separates it from the new line.
    torn = path.exists() and not path.read_bytes().endswith(b"\n")
    with path.open("ab") as file:
        file.write((b"\n" if torn else b"") + json.dumps(fields).encode() + b"\n")


class AttemptLog:
    """The attempts at a run, read once from its `state/`; only the holder of the run's lease appends."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self.attempts = read_attempts(state)

    @property
    def next_number(self) -> int:
        """Number of the next attempt; the first is 1."""
        return len(self.attempts) + 1

    def append(self, attempt: Attempt) -> None:
        """Append an attempt. Raises OSError, and leaves `attempts` unchanged, if it cannot be written."""
        append_attempt(self._state, attempt)
        self.attempts.append(attempt)


def count_out_of_memory(attempts: Sequence[Attempt]) -> int:
    """Return the number of attempts that ran out of memory since the run last finished."""
    reasons = [attempt.reason for attempt in attempts]
    finished = max((i + 1 for i, reason in enumerate(reasons) if reason == "finished"), default=0)
    return reasons[finished:].count("out of memory")


def interrupted_seconds(attempts: Sequence[Attempt], before: float) -> float:
    """Return the seconds of attempts that ended by `before` (Unix time), since the run last finished."""
    earlier = [each for each in attempts if datetime.fromisoformat(each.ended).timestamp() <= before]
    finished = max((i + 1 for i, each in enumerate(earlier) if each.reason == "finished"), default=0)
    return sum(each.seconds for each in earlier[finished:])


# `from` is a keyword of Python and cannot be the name of a field.
_KEYS = {"start": "from"}


def _parse(line: str) -> Attempt | None:
    try:
        fields = json.loads(line)
        return Attempt(**{"start": fields.pop("from"), **fields})
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
