"""How long a candidate is tried: which rungs a trial may climb, and who goes up next."""

from abc import ABC, abstractmethod
from typing import Any, Self

from nnlo_lib.search.study.snapshot import StudySnapshot


class Pruner(ABC):
    """A pure function of what is known."""

    @classmethod
    def from_config(cls, config: Any) -> Self:
        """Return the policy; its settings, which are `search.fidelity`, are keyword arguments of the class."""
        return cls(**config.arguments)

    @abstractmethod
    def rungs(self, trial: int, epochs: int) -> tuple[int, ...]:
        """Return the numbers of epochs at which a trial may stop, the last being `epochs`, all there are."""

    @abstractmethod
    def promote(self, known: StudySnapshot) -> tuple[int, int] | None:
        """Return a trial that is to go on, and until which epoch; None if none is."""


class NoPruner(Pruner):
    """Every trial is trained to the end."""

    def rungs(self, trial: int, epochs: int) -> tuple[int, ...]:
        """There is one rung."""
        return (epochs,)

    def promote(self, known: StudySnapshot) -> tuple[int, int] | None:
        """Nobody stops before the end."""
        return None
