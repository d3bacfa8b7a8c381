"""Statistics over the attempts of a task: end reasons, lost steps and effective training time."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from nnlo_lib.state.attempts import Attempt, attempts_of_result, read_attempts

FINISHED = "finished"


@dataclass(frozen=True)
class AttemptStatistics:
    """Statistics over the attempts of a task.

    Attributes:
        attempts: attempts in their order, at least one.
        productive_seconds: seconds of the training steps and evaluations that the result consists of, or None if
            the clock is virtual.
    """

    attempts: Sequence[Attempt]
    productive_seconds: float | None

    @classmethod
    def read(
        cls, state: Path, summary: Mapping[str, Any], training_seconds: float
    ) -> "AttemptStatistics | None":
        """Return the statistics of a finished task, or None if no attempt is recorded.

        Args:
            state: folder `state/` of the task.
            summary: content of its summary.json.
            training_seconds: seconds in training steps.
        """
        # Attempts are measured in wall time, from which virtual seconds cannot be subtracted.
        virtual = summary["config"].get("parallel", {}).get("transport") == "simulated"
        productive = training_seconds + summary["seconds"].get("evaluate", 0.0)
        found = attempts_of_result(read_attempts(state))
        return cls(found, None if virtual else productive) if found else None

    @property
    def is_interrupted(self) -> bool:
        """Whether an attempt did not finish."""
        return bool(self.unfinished_by_reason)

    @property
    def count_by_reason(self) -> Counter[str]:
        """Number of attempts by end reason."""
        return Counter(each.reason for each in self.attempts)

    @property
    def unfinished_by_reason(self) -> Counter[str]:
        """Number of attempts that did not finish, by end reason."""
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
        """Sum of the seconds of all attempts."""
        return sum(each.seconds for each in self.attempts)

    @property
    def lost_seconds(self) -> float | None:
        """Seconds without use for the result (starting, saving, repeated steps); None if unknown."""
        return (
            None
            if self.productive_seconds is None
            else max(0.0, self.total_seconds - self.productive_seconds)
        )

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
        ends = [(_time(each.ended), _time(after.started)) for each, after in pairs]
        return sum(max(0.0, (start - end).total_seconds()) for end, start in ends)


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)
