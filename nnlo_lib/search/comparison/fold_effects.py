"""Effects of the folds on the values of trials, by which trials with different folds are compared.

The model is additive: value = trial + fold + noise. A fold is easy or difficult for all trials, so that the plain
mean over two easy folds would look better than a mean over all folds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np


@dataclass(frozen=True)
class FoldEffects:
    """Effect of each fold at a rung; the sum of the effects is 0.

    Attributes:
        effects: effects of the folds that the reference trials have, by fold.
    """

    effects: tuple[float, ...] = ()

    @classmethod
    def of(cls, trials: Sequence[Sequence[float]]) -> "FoldEffects":
        """Return the effects of the folds, estimated from the trials that have the most folds.

        Args:
            trials: finite values of the leading folds of each trial.
        """
        most = max(map(len, trials), default=0)
        reference = [values for values in trials if len(values) == most]
        return cls(tuple(median_effects(np.array(reference)).tolist())) if most else cls()

    def adjusted(self, values: Mapping[int, float]) -> list[float]:
        """Return the values of some folds, by number of the fold, without the effects of the folds."""
        return [
            value - (self.effects[fold] if fold < len(self.effects) else 0.0)
            for fold, value in values.items()
        ]

    def adjusted_mean(self, values: Mapping[int, float]) -> float:
        """Return the mean of a trial over all folds, estimated from some folds, by number of the fold."""
        # The effects of all folds have the sum 0; without them, the mean has no rounding error.
        return fmean(self.adjusted(values) if len(values) < len(self.effects) else values.values())


def median_effects(values: np.ndarray) -> np.ndarray:
    """Return the effect of each fold, (folds,): the median deviation from the means of the trials, minus its mean.

    A median, because a few very poor trials must not decide how difficult a fold is.

    Args:
        values: finite values, (trials, folds).
    """
    deviations = np.median(values - values.mean(axis=1, keepdims=True), axis=0)
    return np.asarray(deviations - deviations.mean())
