"""The record of a run's attempts: state/attempts.jsonl, a line for each one that ended."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from nnlo_lib.config.paths import StatePaths
from nnlo_lib.core.exit_reason import ExitReason


@dataclass(frozen=True)
class Attempt:
    """start: step it began at; reached: last step it did; saved: step of the newest checkpoint at its end."""

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
    """Return the attempts recorded in a run's `state/`, less a line that a crash cut short."""
    try:
        lines = StatePaths(state).attempts.read_text(errors="replace").splitlines()
    except OSError:
        return []
    return [attempt for line in lines if (attempt := _parse(line))]


def append_attempt(state: Path, attempt: Attempt) -> None:
    """Record an attempt. Raises OSError where the disk refuses."""
    fields = {_KEYS.get(name, name): value for name, value in asdict(attempt).items()}
    path = StatePaths(state).attempts
    torn = path.exists() and not path.read_bytes().endswith(b"\n")
    with path.open("ab") as file:
        file.write((b"\n" if torn else b"") + json.dumps(fields).encode() + b"\n")


class AttemptLog:
    """The attempts at a run, read once from its `state/`: only the holder of the run's lease appends to them."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self.attempts = read_attempts(state)

    @property
    def next_number(self) -> int:
        """Number of the attempt after those on record; the first is 1."""
        return len(self.attempts) + 1

    def append(self, attempt: Attempt) -> None:
        """Record an attempt. Raises OSError where the disk refuses; it is not on record then."""
        append_attempt(self._state, attempt)
        self.attempts.append(attempt)


def count_out_of_memory(attempts: Sequence[Attempt]) -> int:
    """Count how often the run has run out of memory since it last finished."""
    reasons = [attempt.reason for attempt in attempts]
    finished = max((i + 1 for i, reason in enumerate(reasons) if reason == "finished"), default=0)
    return reasons[finished:].count("out of memory")


def interrupted_seconds(attempts: Sequence[Attempt], before: float) -> float:
    """Return the seconds of attempts that ended before a time (seconds since 1970), and since the run last finished."""
    earlier = [each for each in attempts if datetime.fromisoformat(each.ended).timestamp() <= before]
    finished = max((i + 1 for i, each in enumerate(earlier) if each.reason == "finished"), default=0)
    return sum(each.seconds for each in earlier[finished:])


_KEYS = {"start": "from"}


def _parse(line: str) -> Attempt | None:
    try:
        fields = json.loads(line)
        return Attempt(**{"start": fields.pop("from"), **fields})
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
