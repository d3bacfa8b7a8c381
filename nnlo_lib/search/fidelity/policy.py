"""How long a candidate is tried: which rungs a trial may climb, and who goes up next."""

from typing import Protocol

from nnlo_lib.search.knowledge import Knowledge


class Policy(Protocol):
    """A pure function of what is known."""

    def rungs(self, trial: int, epochs: int) -> tuple[int, ...]:
        """Return the numbers of epochs at which a trial may stop, the last being `epochs`, all there are."""

    def promote(self, known: Knowledge) -> tuple[int, int] | None:
        """Return a trial that is to go on, and until which epoch; None if none is."""


class EveryEpoch:
    """Every trial is trained to the end."""

    def rungs(self, trial: int, epochs: int) -> tuple[int, ...]:
        """There is one rung."""
        return (epochs,)

    def promote(self, known: Knowledge) -> tuple[int, int] | None:
        """Nobody stops before the end."""
        return None
