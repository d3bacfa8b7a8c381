"""What a decision may rest on: the trials so far, and the results of their leaves that are known."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from nnlo_lib.config.search import Search
from nnlo_lib.search.objective import value
from nnlo_lib.search.trial import Decision, Leaf, Result, Trial


@dataclass(frozen=True)
class Knowledge:
    """Trials by number, and results by leaf. epochs: of a full training."""

    search: Search
    epochs: int
    trials: Sequence[Trial]
    results: Mapping[Leaf, Result]

    def decisions(self) -> Iterator[Decision]:
        """Yield all decisions, by trial."""
        for trial in self.trials:
            yield from trial.decisions

    def rungs(self, trial: int) -> list[int]:
        """Return the numbers of epochs up to which a trial is or was trained."""
        return sorted({decision.leaf.epochs for decision in self.trials[trial].decisions})

    def leaves(self, trial: int, epochs: int) -> list[Leaf]:
        """Return what was decided of a trial for a rung, by fold."""
        return sorted(d.leaf for d in self.trials[trial].decisions if d.leaf.epochs == epochs)

    def folds(self, trial: int, epochs: int) -> list[float]:
        """Return what the folds of a trial are worth after so many epochs, in order, up to the first not known."""
        values = []
        for leaf in self.leaves(trial, epochs):
            if leaf not in self.results:
                break
            values.append(value(self.search.objective, self.results[leaf]))
        return values

    def failed(self, trial: int) -> bool:
        """Tell whether some fold of a trial came to nothing."""
        return any(math.isinf(each) for epochs in self.rungs(trial) for each in self.folds(trial, epochs))

    def value(self, trial: int, epochs: int) -> float | None:
        """Return the mean over the folds that were decided; infinite if one failed, None while one is awaited."""
        leaves, values = self.leaves(trial, epochs), self.folds(trial, epochs)
        if any(map(math.isinf, values)):
            return math.inf
        return fmean(values) if leaves and len(values) == len(leaves) else None

    def final(self, trial: int) -> float | None:
        """Return the mean at the highest rung that is known whole; infinite for a failure, None if none is."""
        if self.failed(trial):
            return math.inf
        known = [self.value(trial, epochs) for epochs in self.rungs(trial)]
        return next((each for each in reversed(known) if each is not None), None)

    def best(self) -> int | None:
        """Return the trial that is best where most was invested: at the highest rung that any has, all folds."""
        reached = {}
        for trial in self.trials:
            for epochs in self.rungs(trial.number):
                folds = self.folds(trial.number, epochs)
                if folds and not self.failed(trial.number):
                    reached[epochs, len(folds), -fmean(folds), -trial.number] = trial.number
        return reached[max(reached)] if reached else None
