"""What the attempts of a training come to: why they ended, and how much of their time was of use."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from nnlo_lib.state.attempts import Attempt, read_attempts

FINISHED = "finished"


@dataclass(frozen=True)
class AttemptStatistics:
    """attempts: in their order, at least one; survived: seconds of training that the result is made of, if known."""

    attempts: Sequence[Attempt]
    productive_seconds: float | None

    @classmethod
    def read(cls, state: Path, summary: Mapping[str, Any]) -> "AttemptStatistics | None":
        """Read what was recorded in a training's `state/`; None if nothing was. summary: of the finished training."""
        virtual = summary["config"].get("parallel", {}).get("transport") == "simulated"
        found = read_attempts(state)
        return cls(found, None if virtual else summary["seconds"]["total"]) if found else None

    @property
    def is_interrupted(self) -> bool:
        """Whether it took more than a single attempt that finished."""
        return [each.reason for each in self.attempts] != [FINISHED]

    @property
    def count_by_reason(self) -> Counter[str]:
        """How many attempts ended for which reason."""
        return Counter(each.reason for each in self.attempts)

    @property
    def unfinished_by_reason(self) -> Counter[str]:
        """How many attempts did not finish, by reason."""
        return Counter(each.reason for each in self.attempts if each.reason != FINISHED)

    @property
    def lost_steps(self) -> int:
        """Steps that were done again, or will be."""
        went_on = [after.start for _, after in pairwise(self.attempts)]
        last = self.attempts[-1]
        went_on.append(last.reached if last.reason == FINISHED else last.saved)
        return sum(max(0, each.reached - at) for each, at in zip(self.attempts, went_on, strict=True))

    @property
    def total_seconds(self) -> float:
        """Seconds of all attempts together."""
        return sum(each.seconds for each in self.attempts)

    @property
    def lost_seconds(self) -> float | None:
        """Seconds that the result does not show: starting, loading, work that was done again."""
        return (
            None
            if self.productive_seconds is None
            else max(0.0, self.total_seconds - self.productive_seconds)
        )

    @property
    def effective_time_ratio(self) -> float | None:
        """Effective training time ratio: the share of the attempts' time that survived."""
        if self.productive_seconds is None or not self.total_seconds:
            return None
        return min(1.0, self.productive_seconds / self.total_seconds)

    @property
    def seconds_between_attempts(self) -> float:
        """Seconds from the end of an attempt to the start of the next one, all together."""
        ends = [(_time(each.ended), _time(after.started)) for each, after in pairwise(self.attempts)]
        return sum(max(0.0, (start - end).total_seconds()) for end, start in ends)


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)
