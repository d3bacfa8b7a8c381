"""Record of a task's attempts in state/attempts.jsonl, one line per ended attempt, and statistics over it."""

import json
import os
import socket
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import pairwise, takewhile
from pathlib import Path

from nnlo_lib.config.paths import StatePaths
from nnlo_lib.core.atomic_file import atomic_write, load_json
from nnlo_lib.core.errors import ExitReason
from nnlo_lib.core.text_format import timestamp

FINISHED = "finished"
# Names the start of Snakemake to which a training belongs; jobs and ranks inherit it.
SESSION_VARIABLE = "NNLO_SESSION"


@dataclass(frozen=True)
class Attempt:
    """One ended attempt."""

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
    saved: int  # step of the newest checkpoint at its end
    ranks: int
    # start of the fingerprint of the training, which differs after an edit that trains again; None if unknown
    training: str | None = None

    @property
    def is_finished(self) -> bool:
        return self.reason == FINISHED

    @property
    def is_mistake(self) -> bool:
        """Whether a mistake of the user ended it before its first step."""
        return self.reason in ("bad input", "user code") and self.reached <= self.start

    @property
    def span(self) -> tuple[float, float]:
        """Start and end, in seconds since 1970."""
        ended = datetime.fromisoformat(self.ended).timestamp()
        return ended - self.seconds, ended

    @property
    def line(self) -> str:
        """Its line in the record; `from` is a keyword of Python and cannot be the name of a field."""
        return json.dumps(
            {"from" if name == "start" else name: value for name, value in asdict(self).items()}
        )


def begin_session() -> None:
    """Name the session of this process and of all that it starts, for the summaries of their trainings."""
    os.environ[SESSION_VARIABLE] = f"{timestamp()} {socket.gethostname()} {os.getpid()}"


def read_attempts(state: Path) -> list[Attempt]:
    """Return the attempts recorded in `state/`; a line that a crash cut short is skipped."""
    return [attempt for _, attempt in _lines(state) if attempt]


def append_attempt(state: Path, attempt: Attempt) -> None:
    """Append an attempt to the record. Raises OSError if it cannot be written."""
    path = StatePaths(state).attempts
    # A crash may have cut the last line short; a newline separates it from the new line.
    torn = path.exists() and not path.read_bytes().endswith(b"\n")
    with path.open("ab") as file:
        file.write((b"\n" if torn else b"") + attempt.line.encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def replace_last_attempt(state: Path, attempt: Attempt) -> None:
    """Replace the last recorded attempt. Raises OSError if it cannot be written."""
    lines = _lines(state)
    last = max(number for number, (_, found) in enumerate(lines) if found)
    lines[last] = attempt.line, attempt
    with atomic_write(StatePaths(state).attempts) as part:
        part.write_text("".join(f"{line}\n" for line, _ in lines))


def _lines(state: Path) -> list[tuple[str, Attempt | None]]:
    """Return the lines of the record, each with its attempt, or None if a crash cut it short."""
    try:
        lines = StatePaths(state).attempts.read_text(errors="replace").splitlines()
    except OSError:
        return []
    return [(line, _parse(line)) for line in lines]


def _parse(line: str) -> Attempt | None:
    try:
        fields = load_json(line)
        return Attempt(**{"start": fields.pop("from"), **fields})
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def attempts_of_result(found: Sequence[Attempt]) -> list[Attempt]:
    """Return the attempts that contributed to the published result, or interrupted it.

    These are the attempts up to the last finished one, except mistakes of the user, and except attempts at an
    earlier training, which had other settings or was repeated from step 0 after it had finished.
    """
    ends = [number for number, each in enumerate(found, 1) if each.is_finished]
    until = [each for each in found[: ends[-1] if ends else None] if not each.is_mistake]
    begins = 0
    for number, (before, after) in enumerate(pairwise(until), 1):
        is_edited = None not in (before.training, after.training) and before.training != after.training
        if is_edited or (before.is_finished and before.reached > 0 and after.start == 0):
            begins = number
    return until[begins:]


def count_out_of_memory(attempts: Sequence[Attempt]) -> int:
    """Return the number of attempts that ran out of memory since the run last finished."""
    return sum(each.reason == "out of memory" for each in _since_last_finish(attempts))


def interrupted_attempts(attempts: Sequence[Attempt], before: float) -> list[Attempt]:
    """Return the attempts that ended by `before` (Unix time), since the run last finished."""
    return _since_last_finish([each for each in attempts if each.span[1] <= before])


def _since_last_finish(attempts: Sequence[Attempt]) -> list[Attempt]:
    return [*takewhile(lambda each: not each.is_finished, reversed(attempts))][::-1]


@dataclass(frozen=True)
class AttemptStatistics:
    """Statistics over the attempts of a task.

    `productive_seconds` are those of the training steps and evaluations that the result consists of, or None if the clock is
    virtual: attempts are measured in wall time.
    """

    attempts: Sequence[Attempt]
    productive_seconds: float | None

    @property
    def count_by_reason(self) -> Counter[str]:
        return Counter(each.reason for each in self.attempts)

    @property
    def unfinished_by_reason(self) -> Counter[str]:
        return Counter(each.reason for each in self.attempts if not each.is_finished)

    @property
    def lost_steps(self) -> int:
        """Number of steps that were repeated, or will be when the task is resumed."""
        # Steps beyond the checkpoint from which the next attempt started were trained again.
        resumed_at = [after.start for _, after in pairwise(self.attempts)]
        last = self.attempts[-1]
        resumed_at.append(last.reached if last.is_finished else last.saved)
        return sum(max(0, each.reached - at) for each, at in zip(self.attempts, resumed_at, strict=True))

    @property
    def total_seconds(self) -> float:
        return sum(each.seconds for each in self.attempts)

    @property
    def lost_seconds(self) -> float | None:
        """Seconds without use for the result (starting, saving, repeated steps); None if unknown."""
        productive = self.productive_seconds
        return None if productive is None else max(0.0, self.total_seconds - productive)

    @property
    def effective_time_ratio(self) -> float | None:
        """Effective training time ratio (ETTR): productive seconds / total seconds; None if unknown."""
        if self.productive_seconds is None or not self.total_seconds:
            return None
        # The ratio may exceed 1 if an attempt could not be recorded, such as on a full disk.
        return min(1.0, self.productive_seconds / self.total_seconds)

    @property
    def seconds_between_attempts(self) -> float:
        """Sum of the seconds from the end of an interrupted attempt to the start of the next one."""
        # The clocks of the hosts may differ, so that an attempt seems to start before the last one has ended.
        pairs = [pair for pair in pairwise(self.attempts) if not pair[0].is_finished]
        started = (datetime.fromisoformat(after.started).timestamp() for _, after in pairs)
        return sum(max(0.0, start - each.span[1]) for start, (each, _) in zip(started, pairs, strict=True))
