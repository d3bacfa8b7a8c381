"""Where a rank is in its run: what a checkpoint keeps of it beside tensors."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self, TypedDict


class TrainingSegment(TypedDict):
    """Steps that were done by the same number of ranks and the same code; step: done before it."""

    step: int
    ranks: int
    code: str


@dataclass
class RunPosition:
    """How far a rank has come. Names of fields are keys of a checkpoint.

    epoch, index: epochs done, and steps of the running one; steps: of this rank; samples: that all ranks learned from;
    validated_at: `steps` at the last validation; over: why the training ends before its last epoch, else empty; shift:
    steps that were done until the number of ranks changed, less those that so many epochs have now; legs: by whom the
    steps were done.
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

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a checkpoint keeps them."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @classmethod
    def from_dict(cls, progress: Mapping[str, Any]) -> Self:
        """Return the position that a checkpoint's `progress` holds, among other things."""
        return cls(**{each.name: progress[each.name] for each in fields(cls)})

    @property
    def where(self) -> str:
        """The place in the run, as messages name it."""
        return f"epoch {self.epoch + 1}, step {self.index}"

    def schedule_step(self, steps_per_epoch: int) -> int:
        """Return the steps of so many epochs with as many ranks as now."""
        return self.epoch * steps_per_epoch + self.index

    def run_step(self, steps_per_epoch: int) -> int:
        """Return the steps of the run, whatever the number of ranks that did them."""
        return self.schedule_step(steps_per_epoch) + self.shift

    def begin_segment(self, segment: TrainingSegment) -> None:
        """Add a segment, unless it goes on like the last one."""
        if not self.legs or self.legs[-1] | {"step": segment["step"]} != segment:
            self.legs = [*self.legs, segment]
