"""Interface of pruners: the rungs that a trial may reach, and the trial to promote next."""

from abc import ABC, abstractmethod
from typing import Any, Self

from nnlo_lib.search.study.snapshot import StudySnapshot


class Pruner(ABC):
    """Decides the number of epochs of each trial; a pure function of the study's snapshot."""

    @classmethod
    def from_config(cls, config: Any) -> Self:
        """Return the pruner; the settings of `search.fidelity` are the keyword arguments of the class."""
        return cls(**config.arguments)

    @abstractmethod
    def rungs(self, trial: int, epochs: int) -> tuple[int, ...]:
        """Return the numbers of epochs at which a trial may stop; the last is `epochs`, the full training."""

    @abstractmethod
    def promote(self, known: StudySnapshot) -> tuple[int, int] | None:
        """Return the trial to continue and its next rung in epochs; None if no trial is promoted."""


class NoPruner(Pruner):
    """No pruning: every trial is trained for all epochs."""

    def rungs(self, trial: int, epochs: int) -> tuple[int, ...]:
        """Return a single rung: the full training."""
        return (epochs,)

    def promote(self, known: StudySnapshot) -> tuple[int, int] | None:
        """Return None: no trial stops at a lower rung."""
        return None
