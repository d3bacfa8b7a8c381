"""Position of a rank in its run, as checkpoints store it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from fractions import Fraction
from typing import Any, Self, TypedDict


class TrainingSegment(TypedDict):
    """Part of a training with constant number of ranks and code; `step`: steps done before it."""

    step: int
    ranks: int
    code: str


@dataclass
class RunPosition:
    """Position of a rank in its run. The names of the fields are keys of a checkpoint.

    Attributes:
        epoch: number of completed epochs.
        index: progress within the running epoch, in steps of this rank (with dynamic dealing: batches of all
            workers).
        steps: number of steps of this rank.
        samples: number of samples used by all ranks in the completed epochs.
        restarts: number of times the run was resumed after an interruption.
        validated_at: `steps` at the last validation.
        over: why the training ends before its last epoch; else an empty string.
        shift: global step minus the step implied by `epoch` and today's steps per epoch; non-zero only after
            a change of the number of ranks.
        legs: segments of the training.
        paused_within: True if simulated ranks that do not wait for each other paused within an epoch, which
            changed their messages in flight.
    """

    epoch: int = 0
    index: int = 0
    steps: int = 0
    samples: int = 0
    restarts: int = 0
    validated_at: int = 0
    over: str = ""
    shift: int = 0
    legs: list[TrainingSegment] = field(default_factory=list)
    paused_within: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a checkpoint stores them."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @classmethod
    def from_dict(cls, progress: Mapping[str, Any]) -> Self:
        """Return the position from a checkpoint's `progress`, which has other keys, too."""
        return cls(**{each.name: progress[each.name] for each in fields(cls)})

    @property
    def where(self) -> str:
        """Text that names the position in messages."""
        return f"epoch {self.epoch + 1}, step {self.index}"

    def schedule_step(self, steps_per_epoch: int) -> int:
        """Return the step implied by `epoch` and `index` with the current number of ranks."""
        return self.epoch * steps_per_epoch + self.index

    def run_step(self, steps_per_epoch: int) -> int:
        """Return the global step of the run, including steps done with other numbers of ranks."""
        return self.schedule_step(steps_per_epoch) + self.shift

    def worker_steps(self, run_step: int, batches_per_step: Callable[[int], int]) -> int:
        """Return the number of steps of a worker, the mean over workers, before a global step.

        Args:
            run_step: global step of the run.
            batches_per_step: number of global steps in which each worker makes one, by the number of ranks.
        """
        ends = [*(leg["step"] for leg in self.legs[1:]), run_step]
        # Fractions, so that a segment that begins between two steps of the workers loses nothing.
        return int(
            sum(
                Fraction(end - leg["step"], batches_per_step(leg["ranks"]))
                for leg, end in zip(self.legs, ends, strict=True)
            )
        )

    def begin_segment(self, segment: TrainingSegment) -> None:
        """Append a segment, unless its ranks and code equal the last segment's."""
        if not self.legs or self.legs[-1] | {"step": segment["step"]} != segment:
            self.legs = [*self.legs, segment]
