"""A training under random faults: started again after each, until all have struck, and then left in peace."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from nnlo_lib.chaos.attempt import SAID, UnfinishedError, attempt
from nnlo_lib.chaos.draw import DEADLY, draw
from nnlo_lib.launch.standing import standing
from nnlo_lib.train.faults import Fault, struck
from nnlo_lib.train.task import Task


@dataclass
class Storm:
    """steps: of the whole run; places: how often each rank reaches which place in it; patience: for one attempt."""

    task: Task
    launcher: str
    seed: int
    steps: int
    places: Sequence[Counter[str]]
    patience: float
    suffered: list[Fault] = field(default_factory=list)

    def rage(self, faults: int, tell: Callable[[int], object]) -> None:
        """Let so many faults strike, and the training end; `tell` how many struck in each attempt.

        Raises UnfinishedError if an attempt does not end, or the last one, without faults, does not finish.
        """
        waiting = list(range(faults))
        while waiting:
            due = self._due(waiting)
            attempt(self.task, self.launcher, due, self.patience)
            hit = set(struck(self.task.folder))
            self.suffered += [fault for fault in due if fault.number in hit]
            tell(len(waiting) - len(waiting := [number for number in waiting if number not in hit]))
        if attempt(self.task, self.launcher, [], self.patience):
            raise UnfinishedError(
                f"{self.task.folder} cannot be finished after {faults} faults; see {SAID} in it"
            )

    def _due(self, waiting: Sequence[int]) -> list[Fault]:
        """Draw the faults of one attempt: those that it survives, and one that ends it."""
        share = max(0, self.steps - standing(self.task.state)[2]) / self.steps / len(waiting)
        due: list[Fault] = []
        for number in waiting:
            due.append(draw(self.seed, number, self.places, share))
            if due[-1].action in DEADLY:
                break
        return due
