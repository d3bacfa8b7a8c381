"""Drive a search to its end, whoever trains."""

from typing import Protocol

from nnlo_lib.search.study import Study
from nnlo_lib.search.trial import Leaf


class Executor(Protocol):
    """Whoever trains leaves: result files tell the rest."""

    def start(self, leaf: Leaf) -> None:
        """Begin to train a leaf, or go on where it stopped; its result is written when it has ended."""

    def wait(self) -> bool:
        """Return when something may have ended, within seconds; False: nothing more is trained, as a stop is wished."""


def drive(study: Study, executor: Executor) -> bool:
    """Train until nothing is left to decide; False if the executor stopped before."""
    for unfinished in study.unfinished:
        executor.start(unfinished.leaf)
    while True:
        study.refresh()
        while decision := study.decide():
            executor.start(decision.leaf)
        if not study.unfinished:
            return True
        if not executor.wait():
            return False
